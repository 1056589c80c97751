//! Models of the orderings of the page latch and of a frame's life.
//!
//! The checker sees atomics and its own cells. Pages are relaxed atomics, so a model of what a
//! shared holder read before the next writer wrote needs a cell: a relaxed load is never seen to
//! come too late.

use foxton_log::Lsn;
use foxton_store::paged::PageId;
use foxton_store::paged::frame::{Frame, FramePhase, LatchWaiters, PageLatch};
use foxton_store::paged::page::{PageWords, PageWordsMut};
use foxton_sync::shim::{Arc, AtomicU64, Ordering, UnsafeCell, thread};

/// A latch over two words that are always equal, and over a cell.
struct Latched {
    latch: PageLatch,
    waiters: LatchWaiters,
    words: [AtomicU64; 2],
    cell: UnsafeCell<u64>,
}

// SAFETY: the models are about this cell: the checker panics if two threads race for it.
unsafe impl Sync for Latched {}
// SAFETY: as above.
unsafe impl Send for Latched {}

impl Latched {
    fn write(&self, value: u64) {
        self.words
            .iter()
            .for_each(|word| word.store(value, Ordering::Relaxed));
    }

    fn read(&self) -> [u64; 2] {
        [0, 1].map(|index: usize| self.words[index].load(Ordering::Relaxed))
    }

    fn write_cell(&self) {
        // SAFETY: if the orderings are right, no other thread reads or writes meanwhile.
        self.cell.with_mut(|cell| unsafe { *cell += 1 });
    }

    fn read_cell(&self) -> u64 {
        // SAFETY: if the orderings are right, no thread writes meanwhile.
        self.cell.with(|cell| unsafe { *cell })
    }
}

/// Runs all of `bodies` at once, and then `judge`. Each body takes its turn as the first thread,
/// because the checker, bounded as it is, explores other executions for each.
fn meet<T: Send + Sync + 'static>(
    make: impl Fn() -> T + Send + Sync + Copy + 'static,
    bodies: &'static [fn(&T)],
    judge: fn(&T),
) {
    for first in 0..bodies.len() {
        let mut builder = loom::model::Builder::new();
        builder.preemption_bound = Some(3);
        builder.check(move || {
            let shared = Arc::new(make());
            let others: Vec<_> = (1..bodies.len())
                .map(|number| {
                    let (shared, body) = (shared.clone(), bodies[(first + number) % bodies.len()]);
                    thread::spawn(move || body(&shared))
                })
                .collect();
            bodies[first](&shared);
            others.into_iter().for_each(|other| other.join().unwrap());
            judge(&shared);
        });
    }
}

fn meet_at_latch(bodies: &'static [fn(&Latched)]) {
    meet(
        || Latched {
            latch: PageLatch::default(),
            waiters: LatchWaiters::default(),
            words: [AtomicU64::new(0), AtomicU64::new(0)],
            cell: UnsafeCell::new(0),
        },
        bodies,
        |_| {},
    );
}

fn write_words(shared: &Latched) {
    if shared.latch.try_lock() {
        shared.write(1);
        shared.latch.unlock(&shared.waiters);
    }
}

fn read_words(shared: &Latched) {
    let Some(seen) = shared.latch.version() else {
        return;
    };
    let [first, second] = shared.read();
    if shared.latch.unchanged_since(seen) {
        assert_eq!(first, second, "half of a change");
    }
}

fn add_alone(shared: &Latched) {
    shared.latch.lock(&shared.waiters);
    shared.write_cell();
    shared.latch.unlock(&shared.waiters);
}

fn read_shared(shared: &Latched) {
    shared.latch.lock_shared(&shared.waiters);
    shared.read_cell();
    shared.latch.unlock_shared(&shared.waiters);
}

#[test]
fn o1_a_reader_of_a_version_sees_all_of_it() {
    meet_at_latch(&[
        |shared| {
            let before = shared.latch.version();
            read_words(shared);
            let Some(seen) = shared.latch.version() else {
                return;
            };
            let words = shared.read();
            if shared.latch.unchanged_since(seen) && Some(seen) != before && before.is_some() {
                assert_eq!(words, [1, 1], "a version without its writes");
            }
        },
        write_words,
    ]);
}

#[test]
fn o2_a_reader_discards_half_of_a_change() {
    meet_at_latch(&[read_words, write_words]);
}

#[test]
fn o3_a_writer_sees_what_the_last_one_wrote() {
    meet_at_latch(&[add_alone, add_alone]);
}

#[test]
fn o3_a_shared_holder_sees_what_the_last_writer_wrote() {
    meet_at_latch(&[read_shared, add_alone]);
}

#[test]
fn o4_a_writer_writes_after_shared_holders_have_read() {
    meet_at_latch(&[
        |shared| {
            if shared.latch.try_lock() {
                shared.write_cell();
                shared.latch.unlock(&shared.waiters);
            }
        },
        |shared| {
            if shared.latch.try_lock_shared() {
                shared.read_cell();
                shared.latch.unlock_shared(&shared.waiters);
            }
        },
        |shared| {
            if shared.latch.try_lock_shared() {
                shared.read_cell();
                shared.latch.unlock_shared(&shared.waiters);
            }
        },
    ]);
}

#[test]
fn threads_that_park_are_woken() {
    meet_at_latch(&[add_alone, read_shared, add_alone]);
}

#[test]
fn a_hold_that_wrote_nothing_disturbs_no_reader() {
    meet_at_latch(&[
        |shared| {
            if let (Some(seen), Some(later)) = (shared.latch.version(), shared.latch.version()) {
                assert_eq!(seen, later);
            }
        },
        |shared| {
            if shared.latch.try_lock() {
                shared.latch.unlock_unchanged(&shared.waiters);
            }
        },
    ]);
}

/// A frame with a page, and the latches' waiters.
struct Framed {
    frame: Frame,
    waiters: LatchWaiters,
    owners: AtomicU64,
    cell: UnsafeCell<u64>,
}

// SAFETY: the models are about this cell: the checker panics if two threads race for it.
unsafe impl Sync for Framed {}
// SAFETY: as above.
unsafe impl Send for Framed {}

const OLD: PageId = PageId(1);
const NEW: PageId = PageId(2);

fn fill(shared: &Framed, page: PageId) {
    shared.frame.latch().lock(&shared.waiters);
    let mut words = shared.frame.write();
    words.words_mut().set_word(0, page.0);
    words.words_mut().set_word(1, page.0);
}

fn meet_at_frame(bodies: &'static [fn(&Framed)]) {
    meet(
        || {
            let shared = Framed {
                frame: Frame::with_words(2),
                waiters: LatchWaiters::default(),
                owners: AtomicU64::new(0),
                cell: UnsafeCell::new(0),
            };
            shared.frame.begin_load(OLD);
            fill(&shared, OLD);
            shared.frame.end_load();
            shared.frame.latch().unlock(&shared.waiters);
            assert!(!shared.frame.unfix());
            shared
        },
        bodies,
        |shared| assert!(shared.owners.load(Ordering::Relaxed) <= 1, "two evictors"),
    );
}

/// Empties the frame and loads the other page.
fn replace(shared: &Framed) {
    if !shared.frame.latch().try_lock() {
        return;
    }
    let owned = shared.frame.begin_evict();
    shared.frame.latch().unlock(&shared.waiters);
    if owned {
        shared.owners.fetch_add(1, Ordering::Relaxed);
        shared.cell.with_mut(|cell| {
            // SAFETY: no other thread has the frame.
            unsafe { *cell += 1 }
        });
        shared.frame.begin_load(NEW);
        fill(shared, NEW);
        shared.frame.end_load();
        shared.frame.latch().unlock(&shared.waiters);
        // Its fix stays, so it is not evicted again.
    }
}

#[test]
fn o1_a_fix_keeps_one_page_and_shows_it_whole() {
    meet_at_frame(&[
        |shared| {
            if shared.frame.fix() == Some(FramePhase::Resident) {
                let page = shared.frame.page().expect("it is fixed");
                let words = shared.frame.read();
                let found = [0, 1].map(|index| words.words().word(index));
                assert_eq!(found, [page.0; 2], "another page's words");
                assert_eq!(shared.frame.page(), Some(page));
                let _ = shared.frame.unfix();
            }
        },
        replace,
    ]);
}

#[test]
fn o1_a_fix_of_a_loading_frame_sees_its_page() {
    meet_at_frame(&[
        |shared| {
            if shared.frame.fix() == Some(FramePhase::Loading) {
                assert_eq!(shared.frame.page(), Some(NEW));
                let _ = shared.frame.unfix();
            }
        },
        replace,
    ]);
}

#[test]
fn o2_a_frame_is_emptied_after_its_users_have_left() {
    meet_at_frame(&[
        |shared| {
            if shared.frame.fix() == Some(FramePhase::Resident) {
                if shared.frame.page() == Some(OLD) {
                    shared.cell.with(|cell| {
                        // SAFETY: if the orderings are right, the frame is not emptied meanwhile.
                        assert_eq!(unsafe { *cell }, 0);
                    });
                }
                let _ = shared.frame.unfix();
            }
        },
        replace,
    ]);
}

#[test]
fn o2_the_last_user_of_a_failed_load_owns_the_frame() {
    meet_at_frame(&[
        |shared| {
            if shared.frame.latch().try_lock() {
                let owned = shared.frame.begin_evict();
                shared.frame.latch().unlock(&shared.waiters);
                if owned {
                    shared.frame.begin_load(NEW);
                    shared.frame.fail_load();
                    leave(shared);
                }
            }
        },
        |shared| {
            if shared.frame.fix().is_some() {
                leave(shared);
            }
        },
    ]);

    fn leave(shared: &Framed) {
        if shared.frame.phase() == FramePhase::Failed {
            shared.cell.with(|cell| {
                // SAFETY: if the orderings are right, only the last user writes, after all others.
                unsafe { *cell }
            });
        }
        if shared.frame.unfix() {
            shared.owners.fetch_add(1, Ordering::Relaxed);
            shared.cell.with_mut(|cell| {
                // SAFETY: the last user owns the frame.
                unsafe { *cell += 1 }
            });
        }
    }
}

#[test]
fn two_evictors_empty_a_frame_once() {
    meet_at_frame(&[replace, replace]);
}

#[test]
fn an_optimistic_reader_never_trusts_words_of_another_page() {
    meet_at_frame(&[
        |shared| {
            let Some(seen) = shared.frame.latch().version() else {
                return;
            };
            let has = shared.frame.has(OLD);
            let words = shared.frame.read();
            let found = [0, 1].map(|index| words.words().word(index));
            if has && shared.frame.latch().unchanged_since(seen) {
                assert_eq!(found, [OLD.0; 2]);
            }
        },
        replace,
    ]);
}

#[test]
fn a_dirty_page_is_not_evicted() {
    meet_at_frame(&[
        |shared| {
            let seen = shared.frame.latch().version();
            let has = shared.frame.has(OLD);
            if let Some(seen) = seen
                && has
                && shared.frame.latch().try_lock_at(seen)
            {
                assert!(shared.frame.has(OLD), "the latch keeps the page");
                shared.frame.set_recovery_lsn(Some(Lsn::new(7)));
                shared.frame.latch().unlock(&shared.waiters);
                assert_eq!(shared.frame.page(), Some(OLD));
            }
        },
        replace,
    ]);
}

/// Loads the other page, and makes it dirty.
fn change_after_replacing(shared: &Framed) {
    replace(shared);
    if shared.owners.load(Ordering::Relaxed) == 1 {
        shared.frame.latch().lock(&shared.waiters);
        shared.frame.set_recovery_lsn(Some(Lsn::new(7)));
        shared.frame.latch().unlock(&shared.waiters);
    }
}

#[test]
fn o3_the_cleaner_finds_the_page_that_is_dirty() {
    meet_at_frame(&[
        |shared| {
            // This thread makes no page clean, so none but a clean one was evicted.
            if let Some(page) = shared.frame.dirty_page() {
                assert_eq!(page, NEW, "the name of a page that was evicted");
                assert_eq!(shared.frame.page(), Some(NEW));
            }
        },
        change_after_replacing,
    ]);
}

#[test]
fn o3_another_thread_finds_the_page_that_the_cleaner_leaves_dirty() {
    meet_at_frame(&[
        // Neither the cleaner nor the thread that looks makes the page clean.
        |shared| {
            if let Some(page) = shared.frame.dirty_page() {
                assert_eq!(page, NEW, "the name of a page that was evicted");
            }
        },
        |shared| {
            if shared.frame.latch().try_lock_shared() {
                if shared.frame.is_dirty() {
                    shared.frame.set_recovery_lsn(Some(Lsn::new(8)));
                }
                shared.frame.latch().unlock_shared(&shared.waiters);
            }
        },
        change_after_replacing,
    ]);
}
