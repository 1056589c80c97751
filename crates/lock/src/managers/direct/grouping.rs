//! Rule that groups keys into granules: by blocks of neighbours, or by tables as in the paper.

use std::fmt;

/// Distance between the granules of tables with successive numbers: odd, so that each has its own,
/// and large, so that they are on different cache lines.
const STRIDE: u32 = 521;

/// Rule that groups keys into granules.
pub trait Grouping: fmt::Debug + Send + Sync + 'static {
    /// True if all keys of a table are in one granule, the flag of their table.
    const BY_TABLE: bool;
}

/// Short keys are grouped by blocks of sixty-four neighbours, and other names by their hash.
#[derive(Debug)]
pub struct ByBlock;

/// Keys are grouped by tables.
#[derive(Debug)]
pub struct ByTable;

impl Grouping for ByBlock {
    const BY_TABLE: bool = false;
}

impl Grouping for ByTable {
    const BY_TABLE: bool = true;
}

/// Returns the number whose low bits choose the granule of a key, from the hash of its block and
/// the number of its table.
#[inline(always)]
pub(super) const fn number<G: Grouping>(near: u32, space: u32) -> u32 {
    match G::BY_TABLE {
        true => space.wrapping_mul(STRIDE),
        false => near,
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::{Direct, Fences, GranuleOptions, MAX_GRANULES};
    use super::*;
    use crate::{
        deadlock::VictimPolicy,
        manager::LockManager,
        mode::{GapPart, KeyPart, Mode},
        name::{Class, KeyHasher, Name},
        owner::Owner,
        request::{Reply, WaitMode},
    };
    use foxton_sync::{
        anchor::Anchors,
        latch,
        worker::{Worker, Workers},
    };
    use std::{
        collections::BTreeSet,
        task::{Context, Poll, Waker},
        time::Duration,
    };

    const HOUR: Duration = Duration::from_secs(3600);
    const GAP: Mode = Mode::key(KeyPart::None, GapPart::S);

    fn key(table: u32, number: u64) -> Name {
        Name::key(table, &number.to_be_bytes(), &KeyHasher::new(1))
    }

    /// Names that are far from each other, in a block, and in none.
    fn scattered(table: u32) -> Vec<(Name, Mode)> {
        let hasher = KeyHasher::new(1);
        vec![
            (key(table, 1), Mode::S),
            (key(table, 2), Mode::key(KeyPart::S, GapPart::S)),
            (key(table, 1 << 20), Mode::S),
            (Name::key(table, b"of twelve by", &hasher), Mode::S),
            (Name::key(table, b"of more than sixteen", &hasher), GAP),
            (Name::end(table), GAP),
        ]
    }

    struct World<G> {
        direct: Direct<G>,
        worker: Worker,
        _workers: Workers,
    }

    impl<G: Grouping> World<G> {
        fn new(hold_off: Duration) -> Self {
            let workers = Workers::new();
            let granules = GranuleOptions {
                count: MAX_GRANULES,
                hold_off,
                tables: true,
                fences: Fences::Found,
            };
            let kind = latch::Kind::default();
            Self {
                direct: Direct::new(kind, 64, VictimPolicy::default(), granules),
                worker: workers.worker(),
                _workers: workers,
            }
        }

        fn holds(&self, owner: &mut Owner, name: Name, mode: Mode) -> bool {
            self.direct
                .try_lock(&self.worker, owner, name, mode)
                .is_held()
        }

        /// Takes the names under an intention on their table.
        fn take(&self, owner: &mut Owner, table: u32, names: &[(Name, Mode)]) {
            assert!(self.holds(owner, Name::table(table), Mode::IS));
            for &(name, mode) in names {
                assert!(self.holds(owner, name, mode), "{name}");
            }
        }

        /// Returns the keys that the owner holds in queues.
        fn real(&self, owner: &Owner) -> BTreeSet<Name> {
            let is_held_by = |queue: &crate::inspect::NameQueue| {
                queue.name.class() != Class::Table
                    && queue.holders.iter().any(|held| held.owner == owner.id())
            };
            let queues = self.direct.real.queues(&self.worker);
            let held = queues.iter().filter(|&queue| is_held_by(queue));
            held.map(|queue| queue.name).collect()
        }

        fn revocations(&self) -> u64 {
            self.direct.stats(&self.worker).revocations
        }

        fn end<const N: usize>(&self, owners: [&mut Owner; N]) {
            self.direct.verify(&self.worker);
            for owner in owners {
                self.direct.release_all(&self.worker, owner);
            }
            self.direct.verify(&self.worker);
        }

        /// True if, from some transaction on, keys of this table are only remembered. The
        /// transactions are short, and an owner looks at the clock now and then.
        fn remembers(&self, table: u32) -> bool {
            let mut owner = self.direct.owner();
            (0..100).any(|_| {
                self.take(&mut owner, table, &[(key(table, 3), Mode::S)]);
                let remembers = self.real(&owner).is_empty();
                self.end([&mut owner]);
                remembers
            })
        }
    }

    #[test]
    fn one_writer_makes_all_remembered_locks_of_its_table_real_and_no_others() {
        let world = World::<ByTable>::new(Duration::ZERO);
        let (mut reader, mut writer) = (world.direct.owner(), world.direct.owner());
        for table in [1, 2, 3] {
            world.take(&mut reader, table, &scattered(table));
        }
        assert!(world.real(&reader).is_empty(), "all are remembered");
        assert!(world.holds(&mut writer, Name::table(2), Mode::IX));
        assert_eq!(world.revocations(), 0, "two intentions do not conflict");
        assert!(world.holds(&mut writer, key(2, 1 << 40), Mode::X));
        assert_eq!(world.revocations(), 1);
        let names = scattered(2).into_iter().map(|(name, _)| name);
        assert_eq!(world.real(&reader), names.collect());
        assert!(!world.remembers(2) && world.remembers(1) && world.remembers(3));
        assert!(!world.holds(&mut writer, key(2, 1), Mode::X));
        assert_eq!(world.revocations(), 1, "all were real");
        world.end([&mut reader, &mut writer]);
        assert!(world.direct.inspect(&world.worker).queues.is_empty());
    }

    #[test]
    fn numbers_of_the_embedder_make_no_table_real() {
        let world = World::<ByTable>::new(Duration::ZERO);
        let (mut reader, mut other) = (world.direct.owner(), world.direct.owner());
        world.take(&mut reader, 0, &scattered(0));
        for number in 0..100 {
            assert!(world.holds(&mut other, Name::advisory(number), Mode::X));
        }
        assert!(world.real(&reader).is_empty() && world.revocations() == 0);
        world.end([&mut reader, &mut other]);
    }

    #[test]
    fn the_flag_comes_back_once_no_strong_lock_of_the_table_is_left() {
        let world = World::<ByTable>::new(Duration::ZERO);
        let anchors = Anchors::free(2);
        let mut writers = [world.direct.owner(), world.direct.owner()];
        for (number, writer) in (1..).zip(&mut writers) {
            assert!(world.holds(writer, Name::table(1), Mode::IX));
            let target = (key(1, number << 20), &anchors[number as usize - 1]);
            let (direct, worker) = (&world.direct, &world.worker);
            let reply = direct.request_anchored(worker, writer, target, Mode::X, WaitMode::Refuse);
            assert!(matches!(reply, Reply::Granted));
        }
        let [first, second] = &mut writers;
        assert!(!world.remembers(1) && world.remembers(2));
        world.end([first]);
        assert!(!world.remembers(1), "one is left");
        world.end([second]);
        assert!(world.remembers(1));
    }

    /// Ways to a lock on table 1.
    #[derive(Debug, Clone, Copy)]
    enum Way {
        AtOnce,
        Converted,
        Waited,
        Polled,
    }

    fn take_whole(world: &World<ByTable>, whole: &mut Owner, mode: Mode, way: Way) {
        let (direct, worker, table) = (&world.direct, &world.worker, Name::table(1));
        let mut early = direct.owner();
        match way {
            Way::AtOnce => {}
            Way::Converted => assert!(world.holds(whole, table, Mode::IS)),
            Way::Waited | Way::Polled => assert!(world.holds(&mut early, table, Mode::IX)),
        }
        let reply = direct.request(worker, whole, table, mode, WaitMode::Wait);
        if matches!(way, Way::AtOnce | Way::Converted) {
            assert!(matches!(reply, Reply::Granted));
            return;
        }
        assert!(matches!(reply, Reply::Waiting));
        world.end([&mut early]);
        let outcome = match way {
            Way::Waited => direct.wait(worker, whole, None),
            _ => match direct.poll_wait(worker, whole, &mut Context::from_waker(Waker::noop())) {
                Poll::Ready(outcome) => outcome,
                Poll::Pending => panic!("it was granted"),
            },
        };
        assert!(outcome.is_held());
    }

    #[test]
    fn a_whole_table_ends_the_hold_off_and_no_writer_ends_that() {
        for way in [Way::AtOnce, Way::Converted, Way::Waited, Way::Polled] {
            let world = World::<ByTable>::new(HOUR);
            let (mut writer, mut whole) = (world.direct.owner(), world.direct.owner());
            for table in [1, 2] {
                assert!(world.holds(&mut writer, Name::table(table), Mode::IX));
                assert!(world.holds(&mut writer, key(table, 1), Mode::X));
            }
            world.end([&mut writer]);
            assert!(!world.remembers(1), "the hold-off is an hour");
            take_whole(&world, &mut whole, Mode::S, way);
            assert!(world.remembers(1), "{way:?}");
            assert!(!world.remembers(2), "it did not take this one");
            // A writer waits for the table, and its key makes nothing real.
            let revocations = world.revocations();
            let names = scattered(1);
            world.take(&mut whole, 1, &names);
            let (direct, worker, table) = (&world.direct, &world.worker, Name::table(1));
            let reply = direct.request(worker, &mut writer, table, Mode::IX, WaitMode::Wait);
            assert!(matches!(reply, Reply::Waiting), "{way:?}");
            assert!(world.real(&whole).is_empty());
            assert_eq!(world.revocations(), revocations);
            world.end([&mut whole]);
            assert!(direct.wait(worker, &mut writer, None).is_held());
            assert!(world.holds(&mut writer, key(1, 1), Mode::X));
            assert_eq!(world.revocations(), revocations + 1);
            assert!(!world.remembers(1));
            world.end([&mut writer]);
        }
    }

    #[test]
    fn a_whole_table_ends_the_hold_off_also_if_its_owner_has_written_before() {
        let world = World::<ByTable>::new(HOUR);
        let mut whole = world.direct.owner();
        assert!(world.holds(&mut whole, Name::table(1), Mode::IX));
        assert!(world.holds(&mut whole, key(1, 1), Mode::X));
        assert!(world.holds(&mut whole, Name::table(1), Mode::X));
        // As after an escalation.
        assert!(world.direct.release(&world.worker, &mut whole, key(1, 1)));
        let names: Vec<_> = (0..40)
            .map(|number| (key(1, number << 20), Mode::S))
            .collect();
        world.take(&mut whole, 1, &names);
        let real = world.real(&whole).len();
        assert!(real <= 16, "{real} were requested after the hold-off");
        world.end([&mut whole]);
        assert!(world.remembers(1));
    }

    #[test]
    fn short_transactions_bring_the_bias_of_a_block_back() {
        let world = World::<ByBlock>::new(Duration::ZERO);
        let mut writer = world.direct.owner();
        assert!(world.holds(&mut writer, key(1, 1), Mode::X));
        assert!(!world.remembers(1));
        world.end([&mut writer]);
        assert!(world.remembers(1));
    }
}
