//! Models of each ordering named in `anchor.rs`: holders of one anchor, and the end of its memory.
//!
//! A cell of the model checker stands for what the anchor protects, and for its memory. There is no
//! queue and no latch here: what a latch orders is in the models of the lock manager.

use foxton_sync::anchor::{AnchorState, Anchors, HeldAnchor, Hold};
use foxton_sync::shim::{Arc, UnsafeCell, thread};

const ME: Hold = Hold { owner: 4, mode: 4 };
const OTHER: Hold = Hold { owner: 5, mode: 4 };

struct Shared {
    anchors: Anchors,
    protected: UnsafeCell<u64>,
}

// SAFETY: the models are about this cell: the checker panics if two threads race for it.
unsafe impl Sync for Shared {}
// SAFETY: as above.
unsafe impl Send for Shared {}

impl Shared {
    fn hold(&self, hold: Hold) -> Option<HeldAnchor> {
        self.anchors[0].hold(hold)
    }

    fn inflate(&self, hold: Hold) -> bool {
        self.anchors[0].state() == AnchorState::Held(hold) && self.anchors[0].inflate(hold)
    }

    fn read(&self) {
        // SAFETY: if the anchor is right, no thread writes now.
        self.protected.with(|word| unsafe { word.read() });
    }

    fn write(&self) {
        // SAFETY: if the anchor is right, no other thread has the cell now.
        self.protected.with_mut(|word| unsafe { *word += 1 });
    }
}

/// Runs `there` in a thread of its own and `here` in this one.
fn meet<T: Send + 'static>(begin: fn(&Shared) -> T, there: fn(&Shared, T), here: fn(&Shared)) {
    loom::model(move || {
        let shared = Arc::new(Shared {
            anchors: Anchors::free(1),
            protected: UnsafeCell::new(0),
        });
        let first = begin(&shared);
        let beside = {
            let shared = shared.clone();
            thread::spawn(move || there(&shared, first))
        };
        here(&shared);
        beside.join().unwrap();
    });
}

fn write_and_release(shared: &Shared, hold: Hold) {
    if let Some(held) = shared.hold(hold) {
        shared.write();
        held.release(hold).expect("no thread makes it inflated");
    }
}

#[test]
fn o1_a_holder_comes_after_the_holder_before() {
    meet(
        |_| {},
        |shared, ()| write_and_release(shared, OTHER),
        |shared| write_and_release(shared, ME),
    );
}

#[test]
fn o1_a_queue_begins_after_the_last_holder() {
    meet(
        |_| {},
        |shared, ()| write_and_release(shared, OTHER),
        |shared| {
            if shared.anchors[0].queue() {
                shared.write();
            }
        },
    );
}

/// The next to last holder wrote, the last reads, and so does an owner that makes it inflated.
#[test]
fn o1_an_owner_beside_the_holder_comes_after_the_holder_before() {
    meet(
        |_| {},
        |shared, ()| {
            write_and_release(shared, OTHER);
            let held = shared.hold(ME).expect("no other thread takes it");
            shared.read();
            if let Err(held) = held.release(ME) {
                held.leave(false);
            }
        },
        |shared| {
            if shared.inflate(ME) {
                shared.read();
            }
        },
    );
}

#[test]
fn o1_a_holder_comes_after_one_that_has_left() {
    meet(
        |shared| {
            let held = shared.hold(OTHER).expect("free");
            assert!(shared.inflate(OTHER));
            held
        },
        |shared, held| {
            shared.write();
            held.release(OTHER).expect_err("it is inflated").leave(true);
        },
        |shared| write_and_release(shared, ME),
    );
}

#[test]
fn o2_memory_is_freed_after_its_holder_released_it() {
    meet(
        |shared| shared.hold(OTHER).expect("free"),
        |shared, held| {
            shared.write();
            held.release(OTHER).expect("no thread makes it inflated");
        },
        |shared| {
            if shared.anchors[0].is_unheld() {
                shared.write();
            }
        },
    );
}

#[test]
fn o2_memory_is_freed_after_its_holder_left_it() {
    meet(
        |shared| {
            let held = shared.hold(OTHER).expect("free");
            assert!(shared.inflate(OTHER));
            held
        },
        |shared, held| {
            shared.write();
            held.release(OTHER)
                .expect_err("it is inflated")
                .leave(false);
        },
        |shared| {
            if shared.anchors[0].is_unheld() {
                shared.write();
            }
        },
    );
}

#[test]
fn o2_an_anchor_dies_after_its_holder_has_entered_the_queue() {
    meet(
        |shared| shared.hold(OTHER).expect("free"),
        |shared, held| {
            shared.write();
            assert!(held.enter_queue(OTHER), "it is not inflated");
        },
        |shared| {
            if shared.anchors[0].retire() {
                shared.write();
            }
        },
    );
}
