//! Compares each report of a deadlock with the records of its members.
//!
//! A report is right if
//!
//! * J1  one of its members was the victim, and got the report;
//! * J2  each member waited for the lock in the report, and held the reported number of locks
//!   meanwhile;
//! * J3  each held, or requested earlier, the lock that the one before it in the cycle requested,
//!   in the reported mode, and the two modes conflict;
//! * J4  there was a moment at which all of them waited;
//! * J5  the victim is the one that the policy selects;
//! * J6  no other report is about the same waits.
//!
//! A thread that waits does nothing else, so the locks it held during a wait are exactly those
//! recorded before. The beginning of a wait is known to be between two moments. J4 assumes the
//! longest possible wait, so that no right report is called wrong.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use foxton::VictimPolicy;
use foxton_lock::request::{DeadlockMember, OwnerId};

use super::{
    Wrong,
    journal::{Attempt, Journal, Wait},
};

/// Sums over all reports.
#[derive(Debug, Default)]
pub(super) struct Judged {
    pub(super) commits: u64,
    pub(super) reports: u64,
    pub(super) longest_cycle: usize,
    pub(super) longest_wait: Duration,
}

/// A wait, by its owner and the moment of its request.
type WaitId = (OwnerId, u64);

/// Checks every report. `in_order`: requests are granted in order of arrival.
pub(super) fn judge(
    journals: &[Journal],
    policy: VictimPolicy,
    in_order: bool,
) -> Result<Judged, Wrong> {
    let attempts = journals.iter().flat_map(|journal| &journal.attempts);
    let by_owner: HashMap<OwnerId, &Attempt> = attempts
        .clone()
        .map(|attempt| (attempt.owner, attempt))
        .collect();
    let mut judged = Judged {
        commits: journals.iter().map(|journal| journal.commits).sum(),
        ..Judged::default()
    };
    let mut cycles = HashSet::new();
    for attempt in attempts {
        for wait in &attempt.waits {
            judged.longest_wait = judged.longest_wait.max(wait.slept);
            let Some(cycle) = &wait.cycle else {
                continue;
            };
            let words = |what: String| {
                let members: String = cycle.iter().map(|member| format!("\n  {member}")).collect();
                Wrong(format!("a report is wrong: {what}:{members}"))
            };
            let mut waits =
                report(cycle, (attempt, wait), &by_owner, (policy, in_order)).map_err(words)?;
            waits.sort_unstable();
            judged.reports += 1;
            judged.longest_cycle = judged.longest_cycle.max(cycle.len());
            if !cycles.insert(waits) {
                return Err(words("another report is about the same waits".to_owned()));
            }
        }
    }
    Ok(judged)
}

/// Returns the waits of a right report, or what is wrong.
fn report(
    cycle: &[DeadlockMember],
    (victim, wait): (&Attempt, &Wait),
    by_owner: &HashMap<OwnerId, &Attempt>,
    (policy, in_order): (VictimPolicy, bool),
) -> Result<Vec<WaitId>, String> {
    let chosen: Vec<&DeadlockMember> = cycle.iter().filter(|member| member.victim).collect();
    let [chosen] = chosen[..] else {
        return Err(format!("{} members are victims", chosen.len()));
    };
    if (chosen.owner, chosen.waits_for) != (victim.owner, wait.awaited) {
        return Err("the report went to another member than the victim".to_owned());
    }
    let members: Vec<(&Attempt, &Wait)> = cycle
        .iter()
        .map(|member| known(member, by_owner))
        .collect::<Result<_, _>>()?;
    let distinct: HashSet<OwnerId> = cycle.iter().map(|member| member.owner).collect();
    if distinct.len() != cycle.len() || cycle.len() < 2 {
        return Err("a transaction is in it twice".to_owned());
    }
    for (at, member) in cycle.iter().enumerate() {
        let next = (at + 1) % cycle.len();
        edge(member, members[at], members[next], in_order)?;
    }
    let began = members.iter().map(|(_, wait)| wait.asked).max();
    let ended = members.iter().map(|(_, wait)| wait.ended).min();
    if began >= ended {
        return Err("the members did not all wait at one moment".to_owned());
    }
    by_policy(policy, cycle, &members)?;
    Ok(members
        .iter()
        .map(|(attempt, wait)| (attempt.owner, wait.asked))
        .collect())
}

/// The recorded wait of a member (J2).
fn known<'a>(
    member: &DeadlockMember,
    by_owner: &HashMap<OwnerId, &'a Attempt>,
) -> Result<(&'a Attempt, &'a Wait), String> {
    let attempt = by_owner.get(&member.owner).copied();
    let attempt = attempt.ok_or_else(|| format!("{} never waited", member.owner))?;
    let wait = attempt.wait_for(member.waits_for);
    let wait = wait.ok_or_else(|| format!("{} did not wait for that", member.owner))?;
    let held = attempt.count_during(wait);
    match member.lock_count == held {
        true => Ok((attempt, wait)),
        false => Err(format!("{} held {held} locks", member.owner)),
    }
}

/// One edge (J3).
fn edge(
    member: &DeadlockMember,
    (_, wait): (&Attempt, &Wait),
    (next, next_wait): (&Attempt, &Wait),
    in_order: bool,
) -> Result<(), String> {
    let (name, mode) = member.waits_for;
    if member.blocking_mode.compatible(mode) {
        return Err(format!("{} need not wait for {}", member.owner, next.owner));
    }
    if member.blocked_by_holder {
        return match next.held_during(next_wait, name) == Some(member.blocking_mode) {
            true => Ok(()),
            false => Err(format!("{} did not hold that", next.owner)),
        };
    }
    if next_wait.awaited != (name, member.blocking_mode) {
        return Err(format!("{} did not request that", next.owner));
    }
    // A conversion goes before earlier requests.
    let converts = next.held_during(next_wait, name).is_some();
    match in_order && !converts && next_wait.asked > wait.stood {
        false => Ok(()),
        true => Err(format!("{} came later than {}", next.owner, member.owner)),
    }
}

/// Checks that the victim is that of the policy (J5).
fn by_policy(
    policy: VictimPolicy,
    cycle: &[DeadlockMember],
    members: &[(&Attempt, &Wait)],
) -> Result<(), String> {
    let all = || cycle.iter().zip(members);
    let chosen = all().find(|(member, _)| member.victim);
    let (victim, (attempt, wait)) = chosen.expect("there is one, checked before");
    // The lost work, as `VictimPolicy` defines it: doubled for each time it was a victim.
    let worth = |member: &DeadlockMember, attempt: &Attempt| {
        let factor = 1u64 << attempt.defeats.min(63);
        (member.lock_count as u64 + 1).saturating_mul(factor)
    };
    let suits = match policy {
        VictimPolicy::LeastWork => all().all(|(member, (other, _))| {
            (worth(victim, attempt), victim.age) <= (worth(member, other), member.age)
        }),
        VictimPolicy::Youngest => all().all(|(member, (other, _))| {
            (attempt.defeats, victim.age) <= (other.defeats, member.age)
        }),
        VictimPolicy::Requester => all().all(|(_, (_, other))| other.asked <= wait.stood),
    };
    match suits {
        true => Ok(()),
        false => Err(format!("the victim of {policy} is another one")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::alone::names;
    use foxton_lock::{
        any::{AnyManager, Options},
        manager::LockManager,
        mode::Mode,
        request::{Outcome, RefusalReason, WaitMode},
    };
    use foxton_sync::worker::Workers;
    use std::task::{Context, Poll, Waker};

    /// Two transactions that each hold the lock that the other wants, as recorded: the victim and
    /// the other.
    fn deadlock() -> [Attempt; 2] {
        let (locks, workers) = (AnyManager::new(&Options::default()), Workers::with_seed(1));
        let (worker, names) = (workers.worker(), names(0, 2));
        let mut owners = [locks.owner(), locks.owner()];
        let mut attempts = owners
            .each_mut()
            .map(|owner| Attempt::new(owner.begin(), 0));
        for at in 0..2 {
            let taken = locks.try_lock(&worker, &mut owners[at], names[at], Mode::X);
            assert!(taken.is_held());
            attempts[at].acquired.push((names[at], Mode::X));
        }
        for at in 0..2 {
            let name = names[1 - at];
            let _ = locks.request(&worker, &mut owners[at], name, Mode::X, WaitMode::Wait);
            attempts[at].waits.push(Wait {
                awaited: (name, Mode::X),
                acquired: 1,
                asked: at as u64,
                stood: 2 + at as u64,
                ended: 10,
                slept: Duration::ZERO,
                cycle: None,
            });
        }
        let mut context = Context::from_waker(Waker::noop());
        let mut gave_way = 0;
        for at in 0..2 {
            if let Poll::Ready(Outcome::Refused(refusal)) =
                locks.poll_wait(&worker, &mut owners[at], &mut context)
            {
                assert_eq!(refusal.reason, RefusalReason::Deadlock);
                attempts[at].waits[0].cycle = Some(refusal.cycle);
                gave_way = at;
            }
        }
        for owner in &mut owners {
            locks.cancel(&worker, owner);
            locks.release_all(&worker, owner);
        }
        attempts.swap(0, gave_way);
        attempts
    }

    fn judged(attempts: &[Attempt]) -> Result<Judged, Wrong> {
        let journal = Journal {
            commits: 1,
            attempts: attempts.to_vec(),
        };
        judge(&[journal], VictimPolicy::default(), true)
    }

    #[test]
    fn a_right_report_of_a_deadlock_is_right() {
        let judged = judged(&deadlock()).unwrap();
        assert_eq!((judged.reports, judged.longest_cycle), (1, 2));
    }

    /// Each false report is noticed, with the right reason.
    #[test]
    fn a_false_report_is_wrong() {
        let wrong = |change: &dyn Fn(&mut [Attempt; 2]), what: &str| {
            let mut attempts = deadlock();
            change(&mut attempts);
            let words = judged(&attempts).unwrap_err().to_string();
            assert!(words.contains(what), "{words}\nbut not: {what}");
        };
        fn report(attempts: &mut [Attempt; 2]) -> &mut Vec<DeadlockMember> {
            attempts[0].waits[0]
                .cycle
                .as_mut()
                .expect("it is the victim")
        }
        wrong(
            &|all| {
                report(all)
                    .iter_mut()
                    .for_each(|member| member.victim = true)
            },
            "2 members are victims",
        );
        wrong(
            &|all| {
                report(all)
                    .iter_mut()
                    .for_each(|member| member.victim = false)
            },
            "0 members are victims",
        );
        let other = |all: &mut [Attempt; 2]| {
            report(all)
                .iter_mut()
                .for_each(|member| member.victim = !member.victim);
        };
        wrong(&other, "went to another member");
        wrong(&|all| all[1].waits.clear(), "did not wait for that");
        wrong(
            &|all| report(all)[1].waits_for.1 = Mode::S,
            "did not wait for that",
        );
        wrong(
            &|all| {
                report(all)
                    .iter_mut()
                    .for_each(|member| member.lock_count = 7)
            },
            "held 1 locks",
        );
        wrong(&|all| all[1].acquired[0].1 = Mode::S, "did not hold that");
        wrong(
            &|all| report(all)[0].blocking_mode = Mode::IS,
            "did not hold that",
        );
        wrong(
            &|all| report(all)[0].blocked_by_holder = false,
            "did not request that",
        );
        wrong(&|all| all[1].waits[0].asked = 10, "at one moment");
        wrong(&|all| all[0].waits[0].ended = 0, "at one moment");
        wrong(
            &|all| all[0].defeats = 3,
            "the victim of least-work is another one",
        );
        let twice = |all: &mut [Attempt; 2]| {
            let wait = all[0].waits[0].clone();
            all[0].waits.push(wait);
        };
        wrong(&twice, "another report is about the same waits");
    }
}
