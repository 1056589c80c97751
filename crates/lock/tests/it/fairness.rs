//! Fairness of the order of grants alone: a writer waits for the readers before it, and for no
//! other. With an order by weights, others pass it only up to a maximum.
//!
//! One thread plays all owners, so that there is neither time nor chance in it.

use crate::played::{READ, Table, WRITE};
use foxton_lock::{any::ManagerKind, owner::Owner};
use foxton_sync::worker::Workers;
use std::collections::VecDeque;

/// How often a waiter is passed at most, where it may be.
const PASSED: usize = 8;

/// Readers come and go, so that there is always one; in between comes a writer.
#[test]
fn a_writer_waits_for_the_readers_before_it_and_for_no_other() {
    for kind in ManagerKind::ALL {
        let table = Table::new(kind);
        let hot = table.name(0);
        let mut reading: VecDeque<Owner> = VecDeque::new();
        for _ in 0..5 {
            let mut reader = table.owner();
            assert!(table.asks(&mut reader, hot, READ), "{kind}");
            reading.push_back(reader);
        }
        let mut writer = table.owner();
        assert!(!table.asks(&mut writer, hot, WRITE), "{kind}");
        let mut late = Vec::new();
        while let Some(first) = reading.pop_front() {
            let mut reader = table.owner();
            assert!(!table.asks(&mut reader, hot, READ), "{kind}: it was passed");
            late.push(reader);
            assert!(!table.is_granted(&mut writer), "{kind}: too early");
            table.end(first);
        }
        assert!(
            table.is_granted(&mut writer),
            "{kind}: all before it are gone"
        );
        assert!(late.iter_mut().all(|reader| !table.is_granted(reader)));
        table.end(writer);
        for mut reader in late {
            assert!(table.is_granted(&mut reader), "{kind}");
            table.end(reader);
        }
        table.nobody_is_left();
    }
}

/// Readers and writers at random: no request goes before an earlier one that conflicts.
#[test]
fn conflicting_requests_are_granted_in_the_order_of_arrival() {
    for kind in ManagerKind::ALL {
        for seed in 0..20 {
            arrivals(kind, seed);
        }
    }
}

/// An owner of the crowd, by its arrival.
struct CrowdOwner {
    came: usize,
    writes: bool,
    owner: Owner,
}

fn arrivals(kind: ManagerKind, seed: u64) {
    let (table, chance) = (Table::new(kind), Workers::with_seed(seed));
    let chance = chance.worker();
    let hot = table.name(0);
    let (mut holding, mut waiting): (Vec<CrowdOwner>, Vec<CrowdOwner>) = (Vec::new(), Vec::new());
    for came in 0..200 {
        let writes = chance.random_below(4) == 0;
        let mut owner = table.owner();
        let granted = table.asks(&mut owner, hot, if writes { WRITE } else { READ });
        let member = CrowdOwner {
            came,
            writes,
            owner,
        };
        if granted {
            holding.push(member);
        } else {
            waiting.push(member);
        }
        in_order(&holding, &waiting, kind);
        // More come than go at first; at the end all go.
        let leave = if came == 199 {
            usize::MAX
        } else {
            chance.random_below(3) as usize
        };
        for _ in 0..leave {
            if holding.is_empty() {
                break;
            }
            let at = chance.random_below(holding.len() as u64) as usize;
            table.end(holding.swap_remove(at).owner);
            let (now, later) = waiting
                .into_iter()
                .map(|mut member| (table.is_granted(&mut member.owner), member))
                .partition::<Vec<_>, _>(|(granted, _)| *granted);
            holding.extend(now.into_iter().map(|(_, member)| member));
            waiting = later.into_iter().map(|(_, member)| member).collect();
            in_order(&holding, &waiting, kind);
        }
    }
    assert!(
        holding.is_empty() && waiting.is_empty(),
        "{kind}: somebody is left"
    );
}

fn in_order(holding: &[CrowdOwner], waiting: &[CrowdOwner], kind: ManagerKind) {
    for waiter in waiting {
        let passed = holding
            .iter()
            .find(|holder| holder.came > waiter.came && (holder.writes || waiter.writes));
        let by = passed.map(|holder| (holder.came, waiter.came));
        assert!(
            by.is_none(),
            "{kind}: who came {by:?} went in the other order"
        );
    }
}

/// Readers that others wait for come after a writer without weight. In the order of arrival the
/// writer goes first all the same; in the other order it is passed eight times.
#[test]
fn weighted_requests_pass_a_writer_only_a_few_times() {
    for kind in ManagerKind::ALL {
        let table = Table::new(kind);
        let hot = table.name(0);
        let mut first = table.owner();
        assert!(table.asks(&mut first, hot, READ));
        let mut writer = table.owner();
        assert!(!table.asks(&mut writer, hot, WRITE));
        let (mut passed, mut others) = (Vec::new(), Vec::new());
        for number in 1..=3 * PASSED as u32 {
            let (mut reader, mut behind) = (table.owner(), table.owner());
            assert!(table.asks(&mut reader, table.name(number), WRITE));
            let mut granted = table.asks(&mut reader, hot, READ);
            assert!(!table.asks(&mut behind, table.name(number), READ));
            granted = granted || table.is_granted(&mut reader);
            if granted { &mut passed } else { &mut others }.push(reader);
            others.push(behind);
        }
        let expected = match kind {
            ManagerKind::Sharded | ManagerKind::ShardedGlobalLatch => kind.max_overtaken() as usize,
            _ => 0,
        };
        assert_eq!(passed.len(), expected, "{kind}");
        passed.into_iter().for_each(|reader| table.end(reader));
        assert!(
            !table.is_granted(&mut writer),
            "{kind}: one is still reading"
        );
        table.end(first);
        assert!(table.is_granted(&mut writer), "{kind}");
        table.end(writer);
        for mut other in others {
            assert!(table.is_granted(&mut other), "{kind}");
            table.end(other);
        }
        table.nobody_is_left();
    }
}
