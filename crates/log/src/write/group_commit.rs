//! Getting the buffer to the device: group commit.
//!
//! One thread, the flusher, syncs. While it does, committers leave their records in the buffer
//! and sleep; when it is done it takes everything that has come meanwhile, so the slower the
//! device, the larger the groups. Writing without syncing is done by whoever needs it: a
//! committer that only wants its record handed to the operating system, or an inserter that found
//! the buffer full, takes the output and writes out the whole buffer, for everybody. Who finds the output taken is
//! written for by whoever has it, or by the flusher.
//!
//! # State
//!
//! How far the log is written and durable is kept with those who wait for it (`waiters`); durable is
//! at most written, and written at most the end of the buffer. What the flusher is to do next lies on its
//! [flush_requests](crate::write::flush_requests).
//!
//! # Invariants
//!
//! * I1 How far it is written is raised only by the holder of `output`, to where the output is.
//! * I2 Every sync is made, and its outcome published, by a holder of `syncing`. An operating
//!   system reports a failed sync once: if two could overlap, one could be told of the failure
//!   and the other, of success, for the same bytes.
//! * I3 After any failed call nothing more is written or synced, no wait ends well, and every
//!   insert is refused. The failure is kept and told to everybody.
//! * I4 The order is: `output`, then `syncing`, then a latch; the latch of those who wait, then `failure`, then
//!   what the buffer gives places by. Who gives the output back looks at who waits once it has let go ([`outlet`](crate::write::writer_lock)). The flusher does not hold `output` while it syncs, except when a segment ends.
//! * I5 The buffer refuses before `failure` can be read: who has been told of the failure inserts nothing after it.
//!
//! # Orderings
//!
//! None: mutexes order everything here.

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc as StdArc;

use foxton_sync::failpoint::Failpoint;
use foxton_sync::ring::Taker;
use foxton_sync::shim::{AtomicBool, Mutex, Ordering::Relaxed, lock};
use foxton_sync::site::{Component, Pattern, Site};
use foxton_sync::worker::Worker;

use crate::buffer::space_waiters::SpaceWaiters;
use crate::buffer::{Buffer, InsertOutcome, PendingRecord};
use crate::failpoint;
use crate::format::error::{Failure, LogError};
use crate::format::lsn::Lsn;
use crate::format::record::{HeaderCodec, padding};
use crate::format::segment::{self, SegmentFile};
use crate::options::LogOptions;
use crate::write::flush_requests::{FLUSHER, FlushRequests, FlushTask};
use crate::write::segment_writer::{SegmentWriter, WriteStopped};
use crate::write::waiters::{Milestone, Waiters};
use crate::write::writer_lock::{WriterGuard, WriterHost, WriterLock};

static SYNCING: Site = Site::new(Component::Log, Pattern::Fixed, "log sync");

/// Whether something has failed: looked at with the output, the sync, or the latch of those who wait.
static FAILURE: Site = Site::new(Component::Log, Pattern::Fixed, "log failure");

const NO_PADDING: [u8; 8] = [0; 8];

/// The way out of the buffer. One thread at a time has it.
#[derive(Debug)]
pub(crate) struct WriteState {
    /// What is complete and not written.
    taker: Taker,
    segments: SegmentWriter,
}

/// What the API and the flusher share.
#[derive(Debug)]
pub(crate) struct LogCore {
    pub(crate) options: LogOptions,
    codec: HeaderCodec,
    pub(crate) buffer: Buffer,
    pub(crate) waiters: Waiters,
    space: SpaceWaiters,
    pub(crate) writer: WriterLock<WriteState>,
    /// How many syncs there were.
    syncing: Mutex<u64>,
    /// Where the log ended when it was opened.
    begin: Lsn,
    flush_requests: FlushRequests,
    /// Whether the flusher was asked for a sync within the interval, or is about to be.
    is_due: AtomicBool,
    failure: Mutex<Option<StdArc<Failure>>>,
    /// Nobody will write or sync any more.
    closed: AtomicBool,
}

impl WriterHost<WriteState> for LogCore {
    fn waiters(&self) -> &Waiters {
        &self.waiters
    }

    fn write_ready(&self, worker: &Worker, state: &mut WriteState) -> Result<(), LogError> {
        state.taker.look();
        self.write_complete(worker, state)
    }

    /// Waits for who has a place before `upto` and has not copied yet. Who waits for what is written hears of it before
    /// that, and before the turn ends: either may take long.
    fn write_up_to(
        &self,
        worker: &Worker,
        state: &mut WriteState,
        upto: Lsn,
    ) -> Result<(), LogError> {
        self.check_failure(worker)?;
        loop {
            self.write_ready(worker, state)?;
            self.wake_written(worker);
            let at = state.segments.at();
            // Nobody has a place behind the end, and so nobody could be waited for.
            if at >= upto || at >= upto.min(self.buffer.end(worker).0) {
                return Ok(());
            }
            if !state.taker.wait() {
                return Err(self.fail(worker, panicked()));
            }
        }
    }

    fn request_write(&self, worker: &Worker, left: Lsn) {
        self.request(worker, Milestone::Written, left);
    }

    fn end(&self, worker: &Worker) -> Lsn {
        self.buffer.end(worker).0
    }

    fn check(&self, worker: &Worker) -> Result<(), LogError> {
        self.check_failure(worker)
    }

    fn is_over(&self, worker: &Worker) -> bool {
        worker.account().passed(&FAILURE);
        // Relaxed: asked under the latch of the waiters, which `close` takes after it sets this.
        self.closed.load(Relaxed) || lock(&self.failure).is_some()
    }
}

impl LogCore {
    pub(crate) fn new(options: LogOptions, identity: &[u8; 16], segments: SegmentWriter) -> Self {
        let codec = HeaderCodec::new(identity);
        let end = segments.at();
        let (kind, capacity) = (options.buffer, options.buffer_capacity());
        let (buffer, taker) = Buffer::new(kind, options.latch, codec, capacity, end);
        LogCore {
            codec,
            buffer,
            waiters: Waiters::new(options.latch, end),
            space: SpaceWaiters::new(options.latch),
            options,
            writer: WriterLock::new(WriteState { taker, segments }),
            syncing: Mutex::new(0),
            begin: end,
            flush_requests: FlushRequests::default(),
            is_due: AtomicBool::new(false),
            failure: Mutex::new(None),
            closed: AtomicBool::new(false),
        }
    }

    pub(crate) fn begin(&self) -> Lsn {
        self.begin
    }

    pub(crate) fn written(&self) -> Lsn {
        self.waiters.position(Milestone::Written)
    }

    #[inline]
    pub(crate) fn durable(&self) -> Lsn {
        self.waiters.position(Milestone::Durable)
    }

    /// Calls of `write_at` and of `sync` since the log was opened.
    pub(crate) fn calls(&self, worker: &Worker) -> (u64, u64) {
        let writes = self.acquire_writer(worker).segments.writes;
        (writes, *lock(&self.syncing))
    }

    fn acquire_writer<'a>(&'a self, worker: &'a Worker) -> WriterGuard<'a, WriteState, LogCore> {
        self.writer.acquire(self, worker)
    }

    fn try_acquire_writer<'a>(
        &'a self,
        worker: &'a Worker,
    ) -> Option<WriterGuard<'a, WriteState, LogCore>> {
        self.writer.try_acquire(self, worker)
    }

    // Inserting.

    /// Gives the record a place in the log, waiting for room in the buffer if there is none.
    pub(crate) fn insert(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        self.pass_failpoint(worker, &failpoint::INSERT)?;
        if !self.buffer.fits(record.framed) {
            return self.insert_large(worker, record);
        }
        match self.buffer.insert(worker, record) {
            InsertOutcome::Done { begin, end } => Ok(self.inserted(worker, begin, end)),
            InsertOutcome::Full => self.insert_when_space(worker, record),
            InsertOutcome::Refused(error) => Err(error),
        }
    }

    #[inline]
    fn inserted(&self, worker: &Worker, begin: Lsn, end: Lsn) -> Lsn {
        if self.buffer.is_due(begin, end) {
            self.request(worker, Milestone::Written, end);
        }
        end
    }

    #[cold]
    fn insert_when_space(
        &self,
        worker: &Worker,
        record: &PendingRecord<'_>,
    ) -> Result<Lsn, LogError> {
        let mut was_woken = false;
        let result = loop {
            match self.make_space(worker, record.framed, was_woken) {
                Ok(woken) => was_woken |= woken,
                Err(error) => break Err(error),
            }
            match self.buffer.insert(worker, record) {
                InsertOutcome::Done { begin, end } => break Ok(self.inserted(worker, begin, end)),
                InsertOutcome::Full => {}
                InsertOutcome::Refused(error) => break Err(error),
            }
        };
        if was_woken {
            self.space.wake_one(worker);
        }
        result
    }

    /// Writes out the buffer, or sleeps until somebody else has. Returns whether it was woken from
    /// `room`.
    fn make_space(&self, worker: &Worker, framed: u64, was_woken: bool) -> Result<bool, LogError> {
        if self.try_to_make_space(worker, framed)? {
            return Ok(false);
        }
        let is_over = || self.buffer.has_space(worker, framed) || self.is_over(worker);
        let Some(waiting) = self.space.enqueue(worker, was_woken, is_over) else {
            return Ok(false);
        };
        // Whoever had the output may have been done with it before anybody could see us wait.
        match self.try_to_make_space(worker, framed) {
            Ok(false) => {
                self.request(worker, Milestone::Written, self.written().plus(1));
                waiting.wait();
                Ok(true)
            }
            other => {
                let was_woken = waiting.cancel();
                other.map(|_| was_woken)
            }
        }
    }

    /// Writes out the buffer until there is room, unless somebody else has the output.
    fn try_to_make_space(&self, worker: &Worker, framed: u64) -> Result<bool, LogError> {
        let Some(mut state) = self.try_acquire_writer(worker) else {
            return Ok(false);
        };
        if !self.buffer.has_space(worker, framed) {
            // What makes the buffer full begins here.
            let upto = state.segments.at().plus(1);
            self.write_up_to(worker, &mut state, upto)?;
        }
        Ok(true)
    }

    /// A large record is written from where it lies, behind everything that is in the buffer.
    fn insert_large(&self, worker: &Worker, record: &PendingRecord<'_>) -> Result<Lsn, LogError> {
        let mut guard = self.acquire_writer(worker);
        let state = &mut *guard;
        self.check_failure(worker)?;
        let gap = self.buffer.reserve(worker, record.framed)?;
        let (begin, end) = (Lsn::new(gap.at()), Lsn::new(gap.end()));
        let header = self.codec.encode(begin, record.header());
        if !state.taker.meet(gap) {
            return Err(self.fail(worker, panicked()));
        }
        self.write_up_to(worker, state, begin)?;
        self.write(worker, &mut state.segments, &[&header])?;
        self.write(worker, &mut state.segments, record.parts)?;
        let zeros = &NO_PADDING[..padding(record.length)];
        self.write(worker, &mut state.segments, &[zeros])?;
        state.taker.skip();
        self.space.wake_some(worker);
        self.publish_written(end);
        Ok(end)
    }

    // Writing.

    /// Writes what the taker has seen to be complete, part by part, and makes room of each.
    fn write_complete(&self, worker: &Worker, state: &mut WriteState) -> Result<(), LogError> {
        let WriteState { taker, segments } = state;
        if taker.at() != segments.at().bytes() {
            // Only a panic in the device can write bytes and not let go of them.
            return Err(self.fail(worker, panicked()));
        }
        self.pass_failpoint(worker, &failpoint::WRITE)?;
        loop {
            let parts = taker.bytes(self.buffer.part());
            let length = parts.iter().map(|part| part.len() as u64).sum();
            if length == 0 {
                return Ok(());
            }
            self.write(worker, segments, &parts)?;
            taker.release(length);
            self.space.wake_some(worker);
            self.publish_written(segments.at());
        }
    }

    fn write(
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

    /// For who has the output; whoever waits is told when that is given back, or by `reached`.
    fn publish_written(&self, end: Lsn) {
        self.waiters.advance(Milestone::Written, end); // I1
    }

    /// Tells those who wait how far it is written, before the output is given back, which may take long.
    fn wake_written(&self, worker: &Worker) {
        // Who is left is told of by whoever gives the output back.
        let _ = self
            .waiters
            .complete_waits(worker, Milestone::Written, self.written());
    }

    // Syncing.

    /// Makes everything that is complete in the buffer now durable, and at least up to `upto`.
    fn sync(&self, worker: &Worker, upto: Lsn) -> Result<(), LogError> {
        // Before the output is taken: what was written behind it will set it again. Relaxed: the
        // mutex of the output orders it.
        self.is_due.store(false, Relaxed);
        let (segment, end) = {
            let mut state = self.acquire_writer(worker);
            self.write_up_to(worker, &mut state, upto)?;
            (state.segments.segment().clone(), state.segments.at())
        };
        self.sync_to(worker, &segment, end)
    }

    /// Makes the log durable up to `end`, which lies in `segment` and has been written.
    fn sync_to(&self, worker: &Worker, segment: &SegmentFile, end: Lsn) -> Result<(), LogError> {
        worker.account().passed(&SYNCING);
        let mut syncs = lock(&self.syncing); // I2
        self.check_failure(worker)?;
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
        self.waiters.advance(Milestone::Durable, end);
        drop(syncs);
        // Those who wait for more have asked the flusher.
        let _ = self.waiters.complete_waits(worker, Milestone::Durable, end);
        Ok(())
    }

    /// Asks for a sync within the interval of the options, for what was committed *buffered*.
    pub(crate) fn sync_soon(&self, worker: &Worker) {
        worker.account().passed(&FLUSHER);
        // Relaxed: the caller has had the output, and `sync` clears this before it takes that.
        if self.is_due.load(Relaxed) || self.is_due.swap(true, Relaxed) {
            return;
        }
        // An interval too long for the clock never ends.
        if let Some(due) = worker
            .workers()
            .clock()
            .now()
            .checked_add(self.options.sync_interval)
        {
            self.flush_requests.request_sync_by(worker, due);
        }
    }

    // Failing.

    /// Keeps the first failure (I3), and returns it as everybody's error.
    pub(crate) fn fail(&self, worker: &Worker, failure: Failure) -> LogError {
        worker.account().passed(&FAILURE);
        let error = {
            let mut kept = lock(&self.failure);
            let failure = kept.get_or_insert_with(|| StdArc::new(failure));
            let error = LogError::Failed(failure.clone());
            worker.failpoints().pass(&failpoint::FAILED);
            // Before anybody can be told (I5).
            self.buffer.refuse(worker, error.clone());
            error
        };
        self.waiters.fail_waits(worker);
        self.space.wake_all(worker);
        error
    }

    fn write_error(&self, worker: &Worker, stopped: WriteStopped) -> LogError {
        match stopped {
            WriteStopped::Device(failure) => self.fail(worker, failure),
            WriteStopped::Sync(error) => error,
        }
    }

    /// Passes a point where a test may have the log fail.
    #[inline]
    fn pass_failpoint(&self, worker: &Worker, point: &Failpoint) -> Result<(), LogError> {
        let passed = worker.failpoints().try_pass(point);
        passed.map_err(|error| self.fail(worker, Failure::of("pass", point.name())(error)))
    }

    fn check_failure(&self, worker: &Worker) -> Result<(), LogError> {
        worker.account().passed(&FAILURE);
        self.check()
    }

    pub(crate) fn check(&self) -> Result<(), LogError> {
        match &*lock(&self.failure) {
            Some(failure) => Err(LogError::Failed(failure.clone())),
            None => Ok(()),
        }
    }

    // Closing.

    /// Takes no more records, makes all of them durable, and says so at the end of the log.
    pub(crate) fn close(&self, worker: &Worker) -> Result<(), LogError> {
        self.buffer.refuse(worker, LogError::Closed);
        self.space.wake_all(worker);
        self.sync(worker, self.buffer.end(worker).0)?;
        let mut state = self.acquire_writer(worker);
        let closed = state
            .segments
            .write_closed(self.codec, &mut |segment, end| {
                self.sync_to(worker, segment, end)
            });
        drop(state);
        closed.map_err(|stopped| self.write_error(worker, stopped))?;
        // Whoever waits for more than there is waits for nothing.
        self.closed.store(true, Relaxed); // Relaxed: see `is_over`.
        self.waiters.fail_waits(worker);
        Ok(())
    }

    // The flusher.

    /// Asks the flusher to bring the log to `lsn`.
    pub(crate) fn request(&self, worker: &Worker, milestone: Milestone, lsn: Lsn) {
        self.flush_requests.request(worker, milestone, lsn);
    }

    /// Ends the flusher's thread once it has done what it does now.
    pub(crate) fn stop_flusher(&self, worker: &Worker) {
        self.flush_requests.stop(worker);
    }

    /// The flusher's thread. It ends when it is stopped, or when something fails.
    pub(crate) fn run_flusher(&self, worker: &Worker) {
        let flush = AssertUnwindSafe(|| while self.do_next_task(worker) {});
        if catch_unwind(flush).is_err() {
            // The device panicked. Those who wait for the flusher must not wait for ever.
            self.fail(worker, panicked());
        }
    }

    /// Whether there may be another.
    fn do_next_task(&self, worker: &Worker) -> bool {
        let position = |milestone| self.waiters.position(milestone);
        let done = match self
            .flush_requests
            .next_task(worker, position, || self.end(worker))
        {
            FlushTask::Write(upto) => {
                self.write_up_to(worker, &mut self.acquire_writer(worker), upto)
            }
            FlushTask::Sync(upto) => self.sync(worker, upto),
            FlushTask::Stop => return false,
        };
        // If not, everybody who waits has been told by `fail`.
        done.is_ok()
    }
}

fn panicked() -> Failure {
    let source = io::Error::other("a thread panicked while it was writing");
    Failure::of("write", "the log")(source)
}
