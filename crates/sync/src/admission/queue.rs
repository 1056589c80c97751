//! Those who wait for a seat, and who of them is next.
//!
//! Whoever hands a seat on is about to sleep itself, so the next best runs on the same processor: there it follows without
//! a wait, where on another it would be put behind, or before, somebody who is at work and holds locks, or wake a processor
//! that has just gone idle, which takes long on a virtual machine. So the first of the *near* that came from that
//! processor is taken, unless the first of all was passed that way often enough.
//!
//! # Invariants
//!
//! * I5  Between two times that the first of the line is taken, at most `PASSES` others are.
//!
//! Why a place's word is Relaxed is said in [`admission`](super).

use std::collections::VecDeque;

use super::{WAITING, WATCHING};
use crate::shim::{Arc, AtomicU32, Ordering, thread};

/// Among so many of the line one of the right processor is looked for.
const NEAR: usize = 16;
/// How often the first may be passed for that.
const PASSES: u32 = 16;

/// One who waits.
pub(super) struct Place {
    /// Written under the line's mutex only.
    pub(super) word: AtomicU32,
    thread: thread::Thread,
    /// Where it ran when it came.
    processor: usize,
}

impl Place {
    /// A place for this thread.
    pub(super) fn new() -> Arc<Place> {
        Arc::new(Place {
            word: AtomicU32::new(WAITING),
            thread: thread::current(),
            processor: processor(),
        })
    }

    /// Best without the line's mutex: whoever is woken may take the processor at once.
    pub(super) fn wake(&self) {
        self.thread.unpark();
    }

    pub(super) fn becomes(&self, word: u32) {
        self.word.store(word, Ordering::Relaxed);
    }
}

/// The processor that this thread runs on at the moment, where the system says so.
pub(super) fn processor() -> usize {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    return rustix::thread::sched_getcpu();
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    return 0;
}

/// See the [module](self).
pub(super) struct Line {
    places: VecDeque<Arc<Place>>,
    /// How many have left it.
    pub(super) left: u64,
    /// How often the first was passed.
    passed: u32,
    near: usize,
}

impl Default for Line {
    fn default() -> Line {
        Line {
            places: VecDeque::new(),
            left: 0,
            passed: 0,
            near: NEAR,
        }
    }
}

impl Line {
    /// First come, first seated, whatever the processor.
    #[cfg(test)]
    pub(super) fn strict() -> Line {
        Line {
            near: 1,
            ..Line::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.places.len()
    }

    /// Puts one at the end; who comes to an empty line watches (I2).
    pub(super) fn join(&mut self, place: &Arc<Place>) {
        if self.places.is_empty() {
            place.becomes(WATCHING);
        }
        self.places.push_back(place.clone());
    }

    /// Who is next, if a seat comes from processor `here`.
    pub(super) fn nearest(&self, here: usize) -> usize {
        if self.passed >= PASSES {
            return 0; // I5
        }
        let mut near = self.places.iter().take(self.near);
        near.position(|place| place.processor == here).unwrap_or(0)
    }

    /// Takes one out of the line, and tells it with what; whoever calls this wakes it. If it watched, the last does
    /// now (I2), and is woken here: this happens once for everybody in line.
    pub(super) fn take(&mut self, index: usize, word: u32) -> Option<Arc<Place>> {
        let place = self.places.remove(index)?;
        self.left += 1;
        self.passed = if index == 0 { 0 } else { self.passed + 1 }; // I5
        if place.word.load(Ordering::Relaxed) == WATCHING
            && let Some(last) = self.places.back()
        {
            last.becomes(WATCHING);
            last.wake();
        }
        place.becomes(word);
        Some(place)
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn line_of(processors: &[usize]) -> Line {
        let mut line = Line::default();
        for &processor in processors {
            line.join(&Arc::new(Place {
                word: AtomicU32::new(WAITING),
                thread: thread::current(),
                processor,
            }));
        }
        line
    }

    #[test]
    fn the_first_from_the_processor_is_next_and_otherwise_the_first() {
        let line = line_of(&[1, 1, 0, 1, 0]);
        assert_eq!([0, 1, 2].map(|here| line.nearest(here)), [2, 0, 0]);
    }

    #[test]
    fn nobody_far_behind_is_looked_for() {
        let mut processors = vec![1; NEAR];
        processors.push(0);
        assert_eq!(line_of(&processors).nearest(0), 0);
        processors.remove(0);
        assert_eq!(line_of(&processors).nearest(0), NEAR - 1);
    }

    #[test]
    fn the_first_is_passed_so_often_and_no_more() {
        let mut line = line_of(&[[1].as_slice(), &[0; 100]].concat());
        for _ in 0..PASSES {
            let index = line.nearest(0);
            assert_eq!(index, 1);
            line.take(index, WATCHING).unwrap();
        }
        assert_eq!(line.nearest(0), 0);
        assert_eq!(line.take(0, WATCHING).unwrap().processor, 1);
        // The next to be first has not been passed yet, and there is somebody behind it.
        line.places[0] = line_of(&[1]).places.pop_front().unwrap();
        assert_eq!(line.nearest(0), 1);
    }

    #[test]
    fn who_leaves_the_watch_gives_it_to_the_last() {
        let mut line = line_of(&[0, 1, 1]);
        let words = |line: &Line| -> Vec<u32> {
            let places = line.places.iter();
            places
                .map(|place| place.word.load(Ordering::Relaxed))
                .collect()
        };
        assert_eq!(words(&line), [WATCHING, WAITING, WAITING]);
        line.take(1, super::super::SEATED).unwrap();
        assert_eq!(words(&line), [WATCHING, WAITING]);
        line.take(0, super::super::SEATED).unwrap();
        assert_eq!((words(&line), line.left), (vec![WATCHING], 2));
    }
}
