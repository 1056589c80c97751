//! Group commit: one sync makes the records of many commits durable.
//!
//! One thread, the flusher, syncs. Meanwhile committers leave their records in the buffer and
//! sleep. When the sync returns, the flusher takes everything that has come in the meantime: the
//! slower the device, the larger the groups.
//!
//! Writing without syncing is done by the thread that needs it: a committer that wants its record
//! handed to the operating system, or an inserter that found the buffer full. It acquires the
//! [writer lock](crate::write::writer_lock) and writes out the whole buffer, for all threads. If
//! the lock is taken, the holder or the flusher writes for it.
//!
//! # State
//!
//! * `writer`: the lock, and behind it the ring's drainer and the segment files; the
//!   [waiters](crate::write::waiters), which know how far the log is written and durable; the
//!   [requests](crate::write::flush_requests) to the flusher.
//! * `syncing`: a mutex that is held while a file is synced, with the number of syncs.
//!
//! `durable <= written <= end of the buffer`, always.
//!
//! # Invariants
//!
//! * I1 Only the holder of `writer` raises `written`, to where the segment files end.
//! * I2 Every sync is made, and its outcome published, by a holder of `syncing`. An operating
//!   system reports a failed sync once. If two syncs of the same bytes could overlap, one would get
//!   the failure and the other would get success.
//! * I3 After any failed call nothing more is written or synced, no wait ends well, and every
//!   insert is refused. The failure is kept, and every caller gets it. The exception is a request
//!   for space that the device refuses for now (I6).
//! * I4 The order of locking is: `writer`, then `syncing`, then a latch. Below the latch of the
//!   waiters comes the failure, then the latch or word by which the buffer allocates. The waiters
//!   are inspected after the writer lock is released. The flusher does not hold `writer` while it
//!   syncs, except when a segment ends.
//! * I5 The buffer refuses inserts before the failure can be read: a thread that got the failure
//!   inserts nothing after it.
//!
//! * I6 The buffer accepts only records for which the device has space already: the bound of its
//!   ring is what [`SegmentWriter::accepted`] says. So an accepted record can be written, unless
//!   the device breaks; and a record for which there is no space is refused before it has a
//!   position. Its transaction has then changed nothing in the log and rolls back.
//!
//! # Orderings
//!
//! None: mutexes order everything here.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};

use foxton_sync::failpoint::Failpoint;
use foxton_sync::ring::Drainer;
use foxton_sync::shim::{AtomicBool, AtomicU64, Mutex, Ordering::Relaxed, lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::buffer::Buffer;
use crate::buffer::space_waiters::SpaceWaiters;
use crate::failpoint;
use crate::format::error::{Failure, LogError};
use crate::format::lsn::Lsn;
use crate::format::record::HeaderCodec;
use crate::format::segment::{self, SegmentFile};
use crate::options::LogOptions;
use crate::write::flush_requests::{FLUSHER, FlushTask};
use crate::write::segment_writer::{SegmentWriter, WriteStopped};
use crate::write::waiters::Milestone;
use crate::write::writer_lock::{PendingWakeups, WriterLock};

static SYNCING: Site = Site::new(Component::Log, Pattern::Fixed, "log sync");

/// State of writing: the source and the target of bytes. Only the holder of the writer lock has it.
#[derive(Debug)]
pub(crate) struct WriteState {
    /// Records that are complete and not written.
    pub(super) drainer: Drainer,
    pub(super) segments: SegmentWriter,
}

/// Shared state of the API and the flusher.
#[derive(Debug)]
pub(crate) struct LogCore {
    pub(crate) options: LogOptions,
    pub(super) codec: HeaderCodec,
    pub(crate) buffer: Buffer,
    pub(crate) writer: WriterLock<WriteState>,
    pub(super) space: SpaceWaiters,
    /// Number of bytes that threads have taken (`taken_space`).
    pub(super) taken: AtomicU64,
    /// Number of syncs.
    syncing: Mutex<u64>,
    /// Where the log ended when it was opened.
    begin: Lsn,
    /// True if the flusher was asked for a sync within the interval, or is about to be.
    is_due: AtomicBool,
}

impl LogCore {
    pub(crate) fn new(options: LogOptions, identity: &[u8; 16], segments: SegmentWriter) -> Self {
        let codec = HeaderCodec::new(identity);
        let end = segments.at();
        let (kind, capacity) = (options.buffer, options.buffer_capacity());
        let (buffer, mut drainer) = Buffer::new(kind, options.latch, codec, capacity, end);
        drainer.set_bound(segments.accepted().bytes()); // I6
        let writer = WriterLock::new(options.latch, end, WriteState { drainer, segments });
        LogCore {
            codec,
            buffer,
            space: SpaceWaiters::new(options.latch),
            taken: AtomicU64::new(0),
            options,
            writer,
            syncing: Mutex::new(0),
            begin: end,
            is_due: AtomicBool::new(false),
        }
    }

    pub(crate) fn begin(&self) -> Lsn {
        self.begin
    }

    pub(crate) fn written(&self) -> Lsn {
        self.writer.waiters.position(Milestone::Written)
    }

    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        self.writer.waiters.position(Milestone::Durable)
    }

    /// Returns the numbers of `write_at` and `sync` calls since the log was opened.
    pub(crate) fn calls(&self, worker: &Worker) -> (u64, u64) {
        let writes = self.writer.acquire(worker).segments.writes;
        (writes, *lock(&self.syncing))
    }

    pub(super) fn end(&self, worker: &Worker) -> Lsn {
        self.buffer.end(worker).0
    }

    // Writing.

    /// See [`WriterLock::write_to`].
    pub(crate) fn write_to(&self, worker: &Worker, lsn: Lsn) -> Result<(), LogError> {
        let write = |state: &mut WriteState, upto| self.write_records(worker, state, upto);
        self.writer
            .write_to(worker, lsn, || self.end(worker), write)
    }

    /// See [`WriterLock::try_write_to`].
    pub(crate) fn try_write_to(
        &self,
        worker: &Worker,
        lsn: Lsn,
    ) -> Result<Option<PendingWakeups>, LogError> {
        let write = |state: &mut WriteState, upto| self.write_records(worker, state, upto);
        self.writer.try_write_to(worker, lsn, write)
    }

    /// See [`WriterLock::wake_waiters`].
    pub(crate) fn wake_waiters(&self, worker: &Worker, wakeups: PendingWakeups) {
        let write = |state: &mut WriteState, upto| self.write_records(worker, state, upto);
        self.writer.wake_waiters(worker, wakeups, write);
    }

    /// Writes what is complete, and at least up to `upto` if there is one.
    fn write_records(
        &self,
        worker: &Worker,
        state: &mut WriteState,
        upto: Option<Lsn>,
    ) -> Result<(), LogError> {
        match upto {
            None => self.write_ready(worker, state),
            Some(upto) => self.write_up_to(worker, state, upto),
        }
    }

    /// Writes what is complete, and publishes how far that is.
    fn write_ready(&self, worker: &Worker, state: &mut WriteState) -> Result<(), LogError> {
        state.drainer.poll();
        self.write_complete(worker, state)
    }

    /// Writes what is complete, and at least up to `upto`. Waits for threads that have allocated
    /// before `upto` and are still copying. Before it waits, and before the writer lock is
    /// released, it wakes the threads that wait for what is written, because either may take long.
    pub(crate) fn write_up_to(
        &self,
        worker: &Worker,
        state: &mut WriteState,
        upto: Lsn,
    ) -> Result<(), LogError> {
        self.writer.waiters.check(worker)?;
        loop {
            self.write_ready(worker, state)?;
            self.wake_written(worker);
            let at = state.segments.at();
            // No thread has allocated behind the end, so there is none to wait for.
            if at >= upto || at >= upto.min(self.end(worker)) {
                return Ok(());
            }
            if !state.drainer.wait() {
                return Err(self.fail(worker, panicked()));
            }
        }
    }

    /// Writes what the drainer has found complete, part by part, and frees the space of each part.
    fn write_complete(&self, worker: &Worker, state: &mut WriteState) -> Result<(), LogError> {
        let WriteState { drainer, segments } = state;
        if drainer.at() != segments.at().bytes() {
            // Only a panic in the device can write bytes and not free their space.
            return Err(self.fail(worker, panicked()));
        }
        self.pass_failpoint(worker, &failpoint::WRITE)?;
        loop {
            let parts = drainer.bytes(self.buffer.part());
            let length = parts.iter().map(|part| part.len() as u64).sum();
            if length == 0 {
                if self.is_space_low(segments) {
                    self.writer.requests.request_space(worker);
                }
                return Ok(());
            }
            self.write(worker, segments, &parts)?;
            drainer.release(length);
            self.space.wake_some(worker);
            self.publish_written(segments.at());
        }
    }

    pub(super) fn write(
        &self,
        worker: &Worker,
        segments: &mut SegmentWriter,
        parts: &[&[u8]],
    ) -> Result<(), LogError> {
        for part in parts {
            let written = segments.write(part, &mut |full, end| {
                self.wake_written(worker);
                self.pass_failpoint(worker, &failpoint::SEGMENT_FULL)?;
                self.sync_to(worker, full, end)?;
                self.pass_failpoint(worker, &failpoint::SEGMENT_NEXT)
            });
            written.map_err(|stopped| self.write_error(worker, stopped))?;
        }
        Ok(())
    }

    /// For the holder of the writer lock. Waiting threads are woken by `wake_written` or when it is
    /// released.
    pub(super) fn publish_written(&self, end: Lsn) {
        self.writer.waiters.advance(Milestone::Written, end); // I1
    }

    /// Wakes the threads whose bytes are written, before the writer lock is released.
    fn wake_written(&self, worker: &Worker) {
        let (waiters, written) = (&self.writer.waiters, self.written());
        // The waits that are left are inspected when the lock is released.
        let _ = waiters.complete_waits(worker, Milestone::Written, written);
    }

    // Syncing.

    /// Makes everything durable that is complete in the buffer now, and at least up to `upto`.
    fn sync(&self, worker: &Worker, upto: Lsn) -> Result<(), LogError> {
        // Before the writer lock is acquired: bytes written after this sync set it again. Relaxed:
        // the mutex of the writer lock orders it.
        self.is_due.store(false, Relaxed);
        let (segment, end) = {
            let mut state = self.writer.acquire(worker);
            self.write_up_to(worker, &mut state, upto)?;
            (state.segments.segment().clone(), state.segments.at())
        };
        self.sync_to(worker, &segment, end)
    }

    /// Makes the log durable up to `end`, which lies in `segment` and has been written.
    fn sync_to(&self, worker: &Worker, segment: &SegmentFile, end: Lsn) -> Result<(), LogError> {
        worker.account().passed(&SYNCING);
        let mut syncs = lock(&self.syncing); // I2
        self.writer.waiters.check(worker)?;
        if self.durable() >= end {
            return Ok(());
        }
        self.pass_failpoint(worker, &failpoint::SYNC)?;
        *syncs += 1;
        let name = || segment::name(segment.first);
        segment.file.sync().map_err(|error| {
            self.fail(
                worker,
                Failure {
                    operation: "sync",
                    file: name(),
                    source: error,
                },
            )
        })?;
        worker.failpoints().pass(&failpoint::SYNCED);
        let waiters = &self.writer.waiters;
        waiters.advance(Milestone::Durable, end);
        drop(syncs);
        // Threads that wait for more have sent a request to the flusher.
        let _ = waiters.complete_waits(worker, Milestone::Durable, end);
        Ok(())
    }

    /// Requests a sync within the interval of the options, for records committed *buffered*.
    pub(crate) fn sync_soon(&self, worker: &Worker) {
        worker.account().passed(&FLUSHER);
        // Relaxed: the caller has held the writer lock; `sync` clears this before it acquires that.
        if self.is_due.load(Relaxed) || self.is_due.swap(true, Relaxed) {
            return;
        }
        // An interval that the clock cannot represent never ends.
        if let Some(due) = worker
            .workers()
            .clock()
            .now()
            .checked_add(self.options.sync_interval)
        {
            self.writer.requests.request_sync_by(worker, due);
        }
    }

    // Failing.

    /// Ends the log with the first failure (I3), and returns it as the error for every caller.
    pub(crate) fn fail(&self, worker: &Worker, failure: Failure) -> LogError {
        let waiters = &self.writer.waiters;
        let error = waiters.set_failure(worker, failure, |error| {
            worker.failpoints().pass(&failpoint::FAILED);
            self.buffer.refuse(worker, error.clone()); // I5
        });
        waiters.fail_waits(worker);
        self.space.wake_all(worker);
        error
    }

    fn write_error(&self, worker: &Worker, stopped: WriteStopped) -> LogError {
        match stopped {
            WriteStopped::Device(failure) => self.fail(worker, failure),
            WriteStopped::Sync(error) => error,
        }
    }

    /// Passes a point where a test can make the log fail.
    #[inline]
    pub(super) fn pass_failpoint(
        &self,
        worker: &Worker,
        point: &Failpoint,
    ) -> Result<(), LogError> {
        let passed = worker.failpoints().try_pass(point);
        passed.map_err(|error| self.fail(worker, Failure::of("pass", point.name())(error)))
    }

    // Closing.

    /// Refuses further records, makes all records durable, and writes the closing record.
    pub(crate) fn close(&self, worker: &Worker) -> Result<(), LogError> {
        self.buffer.refuse(worker, LogError::Closed);
        self.space.wake_all(worker);
        self.sync(worker, self.buffer.end(worker).0)?;
        let mut state = self.writer.acquire(worker);
        let closed = state
            .segments
            .write_closed(self.codec, &mut |segment, end| {
                self.sync_to(worker, segment, end)
            });
        drop(state);
        closed.map_err(|stopped| self.write_error(worker, stopped))?;
        // No record will be inserted, so threads that wait for more would wait for ever.
        self.writer.waiters.close(worker);
        Ok(())
    }

    // The flusher.

    /// Requests the flusher to bring the log to `lsn`.
    pub(crate) fn request(&self, worker: &Worker, milestone: Milestone, lsn: Lsn) {
        self.writer.requests.request(worker, milestone, lsn);
    }

    /// Stops the flusher thread after its current task.
    pub(crate) fn stop_flusher(&self, worker: &Worker) {
        self.writer.requests.stop(worker);
    }

    /// Runs the flusher thread. It returns when it is stopped, or when something fails.
    pub(crate) fn run_flusher(&self, worker: &Worker) {
        let flush = AssertUnwindSafe(|| while self.do_next_task(worker) {});
        if catch_unwind(flush).is_err() {
            // The device panicked. Threads that wait for the flusher must not wait for ever.
            self.fail(worker, panicked());
        }
    }

    /// Returns false after the last task.
    fn do_next_task(&self, worker: &Worker) -> bool {
        let position = |milestone| self.writer.waiters.position(milestone);
        let done = match self
            .writer
            .requests
            .next_task(worker, position, || self.end(worker))
        {
            FlushTask::Write(upto) => {
                self.write_up_to(worker, &mut self.writer.acquire(worker), upto)
            }
            FlushTask::Sync(upto) => self.sync(worker, upto),
            FlushTask::MakeSpace => self.make_space_ahead(worker),
            FlushTask::Stop => return false,
        };
        // If not, `fail` has ended all waits.
        done.is_ok()
    }
}

pub(super) fn panicked() -> Failure {
    let source = io::Error::other("a thread panicked while it was writing");
    Failure::of("write", "the log")(source)
}
