//! A manager with an order of its own, and the reference that follows it: properties in which both
//! must agree all the same.

use super::*;

/// A history of one manager, and the reference that follows it.
///
/// * Every lock granted, now or at the end of a wait, is free in the reference (L1), and both agree
///   on whether it was held already (L2).
/// * A request that waits or is refused for a name without other waiters would also be blocked in
///   the reference.
/// * A refused request has no visible effect (L3).
/// * Every waiter is blocked by a holder or by an earlier waiter (L4).
/// * After each step every owner holds the same in both, also after some locks are released, or all
///   (L7).
/// * When no more requests come and every owner with all its locks ends, all waiters are granted
///   (L6).
struct Followed {
    world: World,
    reference: World,
    /// True if the requester is the victim of a deadlock, so that no other request is refused.
    by_requester: bool,
    /// The name and mode that each owner waits for.
    awaited: [Option<(Name, Mode)>; OWNERS],
    granted_later: usize,
}

impl Followed {
    fn new(member: Variant, latch: latch::Kind, policy: VictimPolicy) -> Self {
        let reference = (ManagerKind::Reference, Inheritance::Off, Fences::Found);
        Self {
            world: World::new(member, latch, policy, 2),
            reference: World::new(reference, latch, policy, 2),
            by_requester: policy == VictimPolicy::Requester,
            awaited: [None; OWNERS],
            granted_later: 0,
        }
    }

    /// Takes the step there, and what follows from it here.
    fn take(&mut self, worker: &Worker, step: Step) {
        let before = self.world.shown(worker);
        let said = self.world.take(worker, step);
        let after = self.world.shown(worker);
        match step {
            Step::Request(who, name, mode, patience) | Step::Scan(who, name, mode, patience) => {
                match &*said {
                    "granted" | "held" => assert_eq!(self.ask(worker, step), said),
                    "waiting" => {
                        self.in_the_way(worker, step);
                        self.awaited[who] = Some((name, mode));
                    }
                    _ => {
                        let is_alone = self.by_requester || matches!(patience, WaitMode::Refuse);
                        assert!(!is_alone || before == after, "L3: {before}\nand\n{after}");
                        self.in_the_way(worker, step);
                    }
                }
            }
            Step::Poll(who) if said == "pending" => assert!(self.awaited[who].is_some()),
            Step::Poll(who) => {
                let (name, mode) = self.awaited[who].take().expect("it waited");
                if said == "Granted" {
                    self.granted_later += 1;
                    let asked = Step::Request(who, name, mode, WaitMode::Refuse);
                    assert_eq!(
                        self.ask(worker, asked),
                        "granted",
                        "L1 at the end of a wait"
                    );
                }
            }
            // It does not hold the lock it waited for, granted or not.
            Step::Cancel(who) => self.awaited[who] = None,
            Step::TimeOut(_) => {}
            _ => assert_eq!(self.reference.take(worker, step), said),
        }
        let held = |world: &World| -> Vec<BTreeMap<Name, Mode>> {
            let owners = world.owners.iter();
            owners.map(|owner| owner.held().collect()).collect()
        };
        assert_eq!(held(&self.world), held(&self.reference), "what each holds");
        let snapshot = self.world.locks.inspect(worker);
        let behind: BTreeSet<OwnerId> = snapshot.edges().map(|edge| edge.waiter).collect();
        for (name, waiter) in snapshot.waits() {
            assert!(
                behind.contains(&waiter.owner),
                "L4: {} waits for {name}, and nobody is in its way\n{snapshot}",
                waiter.label
            );
        }
    }

    /// Requests the same from the reference, without waiting.
    fn ask(&mut self, worker: &Worker, step: Step) -> String {
        let now = match step {
            Step::Request(who, name, mode, _) => Step::Request(who, name, mode, WaitMode::Refuse),
            Step::Scan(who, name, mode, _) => Step::Scan(who, name, mode, WaitMode::Refuse),
            _ => unreachable!("no request"),
        };
        self.reference.take(worker, now)
    }

    /// Checks that a request which is not granted at once would be blocked in the reference. If
    /// others wait for the name, its order decides, and here there are no waiters.
    fn in_the_way(&mut self, worker: &Worker, step: Step) {
        let (Step::Request(_, name, ..) | Step::Scan(_, name, ..)) = step else {
            unreachable!("no request");
        };
        let awaited = self.awaited.iter().flatten();
        if awaited.into_iter().all(|&(other, _)| other != name) {
            let said = self.ask(worker, step);
            assert!(said.starts_with("Busy"), "nobody is in the way: {said}");
        }
    }

    /// Ends the history: no more requests come, waiters are polled, and the others end. In two
    /// rounds at least one owner ends: the first waiter sees in one round that it is granted, and
    /// ends in the next.
    fn end(&mut self, worker: &Worker) {
        for _ in 0..2 * OWNERS {
            for who in 0..OWNERS {
                match self.world.owners[who].is_waiting() {
                    true => self.take(worker, Step::Poll(who)),
                    false => self.take(worker, Step::End(who)),
                }
            }
        }
        let waits = self.world.owners.iter().any(Owner::is_waiting);
        assert!(!waits, "L6: somebody waits for nobody");
        for world in [&self.world, &self.reference] {
            let left = world.locks.inspect(worker);
            let of_nobody = |queue: &foxton_lock::inspect::NameQueue| queue.holders.is_empty();
            assert!(left.queues.iter().all(of_nobody), "L7: left behind\n{left}");
        }
    }
}

/// Plays a history with the reference behind it; returns how many waits ended with the lock.
pub(crate) fn follow(
    played: History,
    steps: usize,
    member: Variant,
    policy: VictimPolicy,
) -> usize {
    let workers = Workers::with_seed(played.seed);
    let worker = workers.worker();
    let latch = pick(&worker, &latch::Kind::ALL);
    let mut followed = Followed::new(member, latch, policy);
    let names = names();
    let mut past = Past {
        told: format!("FOXTON_SEED={}: {member:?}, {policy}", played.seed),
        steps: Vec::new(),
    };
    for _ in 0..steps {
        let step = step(&worker, &names, &followed.world.owners, played.with_scans);
        past.steps.push(step);
        followed.take(&worker, step);
        if played.awake {
            for who in 0..OWNERS {
                if followed.world.owners[who].is_waiting() {
                    followed.take(&worker, Step::Poll(who));
                }
            }
        }
    }
    followed.end(&worker);
    followed.granted_later
}

/// Prints the history when something fails.
struct Past {
    told: String,
    steps: Vec<Step>,
}

impl Drop for Past {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let last = &self.steps[self.steps.len().saturating_sub(12)..];
            eprintln!(
                "{} after {} steps, the last {last:#?}",
                self.told,
                self.steps.len()
            );
        }
    }
}
