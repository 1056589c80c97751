//! The queue for slots, and the choice of the next client.
//!
//! A client that passes its slot on is about to sleep, so the best next client runs on the same
//! processor: there it continues without a wait. On another processor it would run after, or
//! before, a thread that works and holds locks, or wake a processor that has just gone idle, which
//! takes long on a virtual machine. So the first *nearby* client from that processor is taken,
//! unless the first of all was overtaken often enough.
//!
//! # Invariants
//!
//! * I5  Between two times that the first of the queue is taken, at most `MAX_OVERTAKES` others
//!   are.
//!
//! [`admission`](super) says why a client's word is Relaxed.

use std::collections::BTreeMap;
use std::task::{Context, Waker};

use super::{WAITING, WATCHING};
use crate::shim::{self, Arc, AtomicU32, Mutex, Ordering, thread};

/// Number of clients at the head of the queue among which one of the right processor is sought.
const NEARBY: usize = 16;
/// Maximum number of times that the first is overtaken for that.
const MAX_OVERTAKES: u32 = 16;

/// A waiting client.
#[derive(Debug)]
pub(super) struct QueuedClient {
    /// Written under the queue's mutex only.
    word: AtomicU32,
    sleeper: Sleeper,
    /// Processor of its thread when it came.
    processor: usize,
}

#[derive(Debug)]
enum Sleeper {
    Thread(thread::Thread),
    /// The waker of the last poll.
    Task(Mutex<Option<Waker>>),
}

impl QueuedClient {
    fn new(sleeper: Sleeper) -> Arc<QueuedClient> {
        Arc::new(QueuedClient {
            word: AtomicU32::new(WAITING),
            sleeper,
            processor: processor(),
        })
    }

    /// Returns an entry for this thread.
    pub(super) fn thread() -> Arc<QueuedClient> {
        QueuedClient::new(Sleeper::Thread(thread::current()))
    }

    /// Returns an entry for a task.
    pub(super) fn task() -> Arc<QueuedClient> {
        QueuedClient::new(Sleeper::Task(Mutex::new(None)))
    }

    /// Wakes it. Better called without the queue's mutex, because the woken thread may take the
    /// processor at once.
    pub(super) fn wake(&self) {
        match &self.sleeper {
            Sleeper::Thread(thread) => thread.unpark(),
            Sleeper::Task(waker) => {
                // Site: "admission".
                let waker = shim::lock(waker).take();
                waker.into_iter().for_each(Waker::wake);
            }
        }
    }

    /// Returns the word of a task. If it is still waiting, the context's waker is woken when the
    /// word has changed.
    pub(super) fn poll(&self, context: &Context<'_>) -> u32 {
        let Sleeper::Task(waker) = &self.sleeper else {
            return self.word();
        };
        // Under the mutex: a client that has changed the word wakes the waker or is seen here.
        // Site: "admission".
        let mut waker = shim::lock(waker);
        let word = self.word();
        if word == WAITING {
            *waker = Some(context.waker().clone());
        }
        word
    }

    fn is_thread(&self) -> bool {
        matches!(self.sleeper, Sleeper::Thread(_))
    }

    pub(super) fn word(&self) -> u32 {
        self.word.load(Ordering::Relaxed)
    }

    fn set_word(&self, word: u32) {
        self.word.store(word, Ordering::Relaxed);
    }
}

/// Returns the processor that this thread runs on now, where the system says so, and 0 elsewhere.
pub(super) fn processor() -> usize {
    #[cfg(all(target_os = "linux", not(any(loom, shuttle, miri))))]
    return rustix::thread::sched_getcpu();
    #[cfg(not(all(target_os = "linux", not(any(loom, shuttle, miri)))))]
    return 0;
}

/// See the [module](self).
pub(super) struct SlotQueue {
    /// In order of arrival.
    clients: BTreeMap<u64, Arc<QueuedClient>>,
    /// Number of clients that have come.
    arrived: u64,
    /// Number of clients that have left the queue.
    pub(super) departed: u64,
    /// Number of times that the first was overtaken.
    overtaken: u32,
    scan_length: usize,
    /// True if a thread that is no client watches (I2).
    pub(super) is_watched: bool,
}

impl Default for SlotQueue {
    fn default() -> SlotQueue {
        SlotQueue {
            clients: BTreeMap::new(),
            arrived: 0,
            departed: 0,
            overtaken: 0,
            scan_length: NEARBY,
            is_watched: false,
        }
    }
}

impl SlotQueue {
    /// A queue that ignores processors: first come, first served.
    #[cfg(test)]
    pub(super) fn fifo() -> SlotQueue {
        SlotQueue {
            scan_length: 1,
            ..SlotQueue::default()
        }
    }

    pub(super) fn len(&self) -> usize {
        self.clients.len()
    }

    /// Adds a client at the end, and returns its number. A thread that comes to an empty queue
    /// watches (I2).
    pub(super) fn enqueue(&mut self, client: &Arc<QueuedClient>) -> u64 {
        if self.clients.is_empty() && client.is_thread() {
            client.set_word(WATCHING);
        }
        self.arrived += 1;
        self.clients.insert(self.arrived, client.clone());
        self.arrived
    }

    /// Number of the first client.
    pub(super) fn first(&self) -> Option<u64> {
        self.clients.first_key_value().map(|(&number, _)| number)
    }

    /// Number of the next client, if a slot comes from processor `here`.
    pub(super) fn nearest(&self, here: usize) -> Option<u64> {
        let mut nearby = self.clients.iter().take(self.scan_length);
        let is_here = |(_, client): &(&u64, &Arc<QueuedClient>)| client.processor == here;
        let nearest = match self.overtaken < MAX_OVERTAKES {
            true => nearby.find(is_here).map(|(&number, _)| number),
            false => None, // I5
        };
        nearest.or_else(|| self.first())
    }

    /// Removes a client and sets its word; the caller wakes it.
    pub(super) fn dequeue(&mut self, number: u64, word: u32) -> Option<Arc<QueuedClient>> {
        let is_first = self.first() == Some(number);
        let client = self.clients.remove(&number)?;
        self.departed += 1;
        self.overtaken = if is_first { 0 } else { self.overtaken + 1 }; // I5
        if client.word() == WATCHING {
            self.appoint_watcher();
        }
        client.set_word(word);
        Some(client)
    }

    /// Removes a client that waits no longer; returns whether it was there. It is a task, so it
    /// did not watch.
    pub(super) fn cancel(&mut self, number: u64) -> bool {
        self.clients.remove(&number).is_some()
    }

    /// Makes the last client the watcher and wakes it, which happens once for all clients in the
    /// queue. If it is a task, a thread that is no client watches already (I2).
    fn appoint_watcher(&self) {
        if let Some((_, last)) = self.clients.last_key_value()
            && last.is_thread()
        {
            last.set_word(WATCHING);
            last.wake();
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;

    fn queue_of(processors: &[usize]) -> SlotQueue {
        let mut queue = SlotQueue::default();
        for &processor in processors {
            queue.enqueue(&Arc::new(QueuedClient {
                word: AtomicU32::new(WAITING),
                sleeper: Sleeper::Thread(thread::current()),
                processor,
            }));
        }
        queue
    }

    #[test]
    fn the_first_from_the_processor_is_next_and_otherwise_the_first() {
        let queue = queue_of(&[1, 1, 0, 1, 0]);
        let nearest = [0, 1, 2].map(|here| queue.nearest(here));
        assert_eq!(nearest, [Some(3), Some(1), Some(1)]);
        assert_eq!(SlotQueue::default().nearest(0), None);
    }

    #[test]
    fn only_the_nearby_part_of_the_queue_is_searched() {
        let mut processors = vec![1; NEARBY];
        processors.push(0);
        assert_eq!(queue_of(&processors).nearest(0), Some(1));
        processors.remove(0);
        assert_eq!(queue_of(&processors).nearest(0), Some(NEARBY as u64));
    }

    #[test]
    fn the_first_is_overtaken_a_bounded_number_of_times() {
        // The second to come is the first to be overtaken.
        let mut queue = queue_of(&[[1, 1].as_slice(), &[0; 100]].concat());
        for first in [1, 2] {
            for _ in 0..MAX_OVERTAKES {
                let nearest = queue.nearest(0).unwrap();
                assert!(nearest > 2);
                queue.dequeue(nearest, WATCHING).unwrap();
            }
            assert_eq!(queue.nearest(0), Some(first));
            queue.dequeue(first, WATCHING).unwrap();
        }
    }

    #[test]
    fn a_departing_watcher_appoints_the_last() {
        let mut queue = queue_of(&[0, 1, 1]);
        let words = |queue: &SlotQueue| -> Vec<u32> {
            queue.clients.values().map(|client| client.word()).collect()
        };
        assert_eq!(words(&queue), [WATCHING, WAITING, WAITING]);
        queue.dequeue(2, super::super::GRANTED).unwrap();
        assert_eq!(words(&queue), [WATCHING, WAITING]);
        queue.dequeue(1, super::super::GRANTED).unwrap();
        assert_eq!((words(&queue), queue.departed), (vec![WATCHING], 2));
    }

    #[test]
    fn a_task_does_not_watch() {
        let mut queue = SlotQueue::default();
        let (task, thread) = (QueuedClient::task(), QueuedClient::thread());
        queue.enqueue(&task);
        assert_eq!(task.word(), WAITING);
        assert!(queue.cancel(1) && !queue.cancel(1));
        queue.enqueue(&thread);
        queue.enqueue(&task);
        queue.dequeue(2, super::super::GRANTED).unwrap();
        assert_eq!((task.word(), queue.len()), (WAITING, 1));
    }
}
