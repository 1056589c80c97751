//! The public interface of an open log.

use std::cell::Cell;
use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use foxton_sync::park::{Parker, Ticket, WAKING};
use foxton_sync::process::ProcessStamp;
use foxton_sync::shim;
use foxton_sync::worker::{Worker, Workers};

use crate::buffer::PendingRecord;
use crate::device::Device;
use crate::format::error::{Failure, LogError, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{FIRST_OWN_KIND, MAX_PAYLOAD, RecordView, framed_bytes, payload_check};
use crate::options::LogOptions;
use crate::read::reader::{self, LogSummary, Start};
use crate::write::group_commit::LogCore;
use crate::write::tail_repair;
use crate::write::waiters::{Milestone, REACHED};
use crate::write::writer_lock::PendingWakeups;

/// Kept space.
mod kept;

/// Result of opening a log.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Records of the log, and how it ended.
    pub summary: LogSummary,
    /// Number of bytes at the end that were written and synced again, because they may not have
    /// been durable.
    pub rewritten_bytes: u64,
}

impl fmt::Display for OpenReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {} bytes written again",
            self.summary, self.rewritten_bytes
        )
    }
}

/// Result of [`Log::insert_with`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[must_use = "nothing is inserted if there is no space"]
pub enum Insertion {
    /// The record is in the log and ends here.
    Done(Lsn),
    /// There was no space in the buffer at that moment. Nothing was reserved or inserted. After
    /// [`Log::ensure_space`] the call can be made again.
    NoSpace,
}

/// Counts since the log was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Number of records inserted, by workers of one [`Workers`].
    pub records: u64,
    /// Number of bytes of stream inserted, headers included.
    pub bytes: u64,
    /// Number of writes to the device.
    pub writes: u64,
    /// Number of syncs of segment files.
    pub syncs: u64,
}

/// A log that is open for writing.
///
/// Records go into a buffer in memory; their order there is the order of the log. Two further steps
/// follow, and a committer chooses one to wait for:
///
/// * *written*: handed to the operating system. It survives the end of this process, but not of the
///   machine. A thread that waits for it writes the buffer out itself, unless another thread is
///   doing so. Within [`LogOptions::sync_interval`] it is synced, too.
/// * *durable*: synced. It survives a power cut. One thread, the flusher, syncs for all that wait.
///
/// Without a waiting thread, a record is written when another quarter of the buffer has filled, and
/// synced when its segment is full or the log is closed.
///
/// Dropping the log closes it, but cannot report an error; [`close`](Self::close) can.
///
/// A child made by `fork` gets [`LogError::Forked`] for each call, and dropping the log there does
/// nothing.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use foxton_log::device::memory::MemoryDevice;
/// use foxton_log::{Log, LogOptions};
/// use foxton_sync::worker::Workers;
///
/// let device = Arc::new(MemoryDevice::new());
/// let worker = Workers::new().worker();
/// let identity = *b"an identity of16";
///
/// let (log, _) = Log::open(device.clone(), LogOptions::tiny(), identity, &mut |_| {
///     Ok::<_, Infallible>(())
/// })?;
/// let end = log.insert(&worker, 1, &[b"hello ", b"world"])?;
/// log.wait_durable(&worker, end)?;
/// log.close(&worker)?;
///
/// let mut found = Vec::new();
/// let (_, opened) = Log::open(device, LogOptions::tiny(), identity, &mut |record| {
///     found.push((record.kind, record.payload.to_vec()));
///     Ok::<_, Infallible>(())
/// })?;
/// assert_eq!(found, [(1, b"hello world".to_vec())]);
/// assert_eq!(opened.summary.records, 1);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Log {
    core: Arc<LogCore>,
    flusher: shim::Mutex<Option<JoinHandle<()>>>,
    /// For the flusher, and for closing when dropped.
    workers: Workers,
    process: ProcessStamp,
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log")
            .field("written", &self.core.written())
            .field("durable", &self.core.durable())
            .field("options", &self.core.options)
            .finish_non_exhaustive()
    }
}

impl Log {
    /// Locks the directory, reads the log of the database `identity` from its beginning, and calls
    /// `visit` for each record. Repairs the end of the log so that it can be written further. A
    /// directory without a log gets an empty one.
    ///
    /// After an error the log is as it was.
    pub fn open<E>(
        device: Arc<dyn Device>,
        options: LogOptions,
        identity: [u8; 16],
        visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
    ) -> Result<(Log, OpenReport), OpenError<E>> {
        let start = Start::default();
        Log::open_from(device, options, identity, start, visit, &mut || Ok(()))
    }

    /// As [`open`](Self::open), but reads from `start` on: a durable checkpoint holds what the
    /// records before it said. `taken_in` is called after the last record was visited and before
    /// anything is changed. After an error of it, as after one of `visit`, everything is as it was.
    pub fn open_from<E>(
        device: Arc<dyn Device>,
        options: LogOptions,
        identity: [u8; 16],
        start: Start,
        visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
        taken_in: &mut dyn FnMut() -> Result<(), OpenError<E>>,
    ) -> Result<(Log, OpenReport), OpenError<E>> {
        device.lock().map_err(OpenError::Locked)?;
        let found = reader::scan(&*device, &identity, start, visit)?;
        taken_in()?;
        let summary = found.summary.clone();
        let (output, rewritten_bytes) =
            tail_repair::prepare(device, identity, options.segment_capacity(), found)?;
        let workers = options.workers.clone().unwrap_or_default();
        let core = Arc::new(LogCore::new(options, &identity, output));
        let flusher = {
            let (core, worker) = (core.clone(), workers.background_worker());
            std::thread::Builder::new()
                .name("foxton-log".to_owned())
                .spawn(move || core.run_flusher(&worker))
                .map_err(Failure::of("start the thread that syncs", "the log"))?
        };
        let log = Log {
            core,
            flusher: shim::Mutex::new(Some(flusher)),
            workers,
            process: ProcessStamp::new(),
        };
        Ok((
            log,
            OpenReport {
                summary,
                rewritten_bytes,
            },
        ))
    }

    /// Appends a record made of `parts` and returns where it ends. Waits only for space in the
    /// buffer. If the device has no space for the record, or the process no file descriptor,
    /// [`LogError::NotInserted`] says so, and the log continues.
    ///
    /// `kind` is the caller's, from 1 to 239. A record may have up to [`MAX_PAYLOAD`] bytes. A
    /// record that takes more than a quarter of the buffer is written at once, without being
    /// copied.
    pub fn insert(&self, worker: &Worker, kind: u8, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        let length = self.check_record(kind, parts)?;
        let record = self.pending(kind, parts, length, None);
        self.core.insert(worker, &record)
    }

    /// As [`insert`](Self::insert), but never waits for space in the buffer: it returns
    /// [`Insertion::NoSpace`] at once if there is none. Calls `on_reserved` with the end of the
    /// record as soon as that is known, which is before any of it is copied or written.
    ///
    /// A thread that has to announce its record before the record is reserved does so before this
    /// call. Then a thread that finds the [front](Self::front) behind the begin of the record finds
    /// the announcement, too. When the log is [written](Self::written) up to an LSN, `on_reserved`
    /// has returned for every record before.
    ///
    /// `on_reserved` may run under the latch of the buffer, and other threads may wait for it. So
    /// it only stores what it is told and calls nothing of the log. If it panics, the log fails.
    ///
    /// There may be space for the record and still `NoSpace`, because a group of threads asked for
    /// more together. A record that takes more than a quarter of the buffer needs no space in it,
    /// and waits for the device: before `on_reserved`, if another thread is writing, and after it.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use foxton_log::{Insertion, Log, LogOptions, device::memory::MemoryDevice};
    /// # let worker = foxton_sync::worker::Workers::new().worker();
    /// # let device = std::sync::Arc::new(MemoryDevice::new());
    /// # let nothing = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    /// # let (log, _) = Log::open(device, LogOptions::tiny(), [1; 16], nothing)?;
    /// let mut announced = None;
    /// let end = loop {
    ///     log.ensure_space(&worker, 5)?;
    ///     let on_reserved = |end| announced = Some(end);
    ///     if let Insertion::Done(end) = log.insert_with(&worker, 1, &[b"hello"], on_reserved)? {
    ///         break end;
    ///     }
    /// };
    /// assert_eq!(announced, Some(end));
    /// assert_eq!(log.front(), end);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert). If `on_reserved` was not called, nothing was inserted. If it
    /// was called, a record that was written directly has failed the log.
    pub fn insert_with(
        &self,
        worker: &Worker,
        kind: u8,
        parts: &[&[u8]],
        on_reserved: impl FnOnce(Lsn),
    ) -> Result<Insertion, LogError> {
        let length = self.check_record(kind, parts)?;
        let on_reserved = Cell::new(Some(on_reserved));
        let once = |end| {
            let on_reserved = on_reserved.take();
            on_reserved.expect("a record is reserved once")(end);
        };
        let record = self.pending(kind, parts, length, Some(&once));
        let inserted = self.core.insert_with(worker, &record)?;
        Ok(inserted.map_or(Insertion::NoSpace, Insertion::Done))
    }

    /// Waits until there is space in the buffer for a record of so many `bytes` of payload, beside
    /// the space that threads have [taken](Self::try_take_space). Takes none, so other threads may
    /// use it up.
    ///
    /// # Errors
    ///
    /// As [`insert`](Self::insert) with that payload. A record that takes more than a quarter of
    /// the buffer needs no space in it, so whether the device has space shows at the insert.
    pub fn ensure_space(&self, worker: &Worker, bytes: usize) -> Result<(), LogError> {
        if bytes > MAX_PAYLOAD {
            return Err(LogError::TooLarge { bytes });
        }
        self.wait_for_space(worker, framed_bytes(bytes))
    }

    /// Returns where the next record begins, by one load that takes no latch. It is at or behind
    /// the end of every record whose insert has returned before, and may be behind records that are
    /// not complete yet.
    ///
    /// A thread that finds the front behind the begin of a record sees what the inserting thread
    /// did before its insert.
    #[inline]
    pub fn front(&self) -> Lsn {
        self.core.buffer.front()
    }

    /// Checks a record, and returns the number of bytes in its parts.
    #[inline(always)]
    fn check_record(&self, kind: u8, parts: &[&[u8]]) -> Result<usize, LogError> {
        self.check_process()?;
        if kind == 0 || kind >= FIRST_OWN_KIND {
            return Err(LogError::Kind(kind));
        }
        let length = parts.iter().map(|part| part.len()).sum();
        match length > MAX_PAYLOAD {
            true => Err(LogError::TooLarge { bytes: length }),
            false => Ok(length),
        }
    }

    /// Computes what can be computed before a record has a position.
    #[inline(always)]
    fn pending<'a>(
        &self,
        kind: u8,
        parts: &'a [&'a [u8]],
        length: usize,
        on_reserved: Option<&'a dyn Fn(Lsn)>,
    ) -> PendingRecord<'a> {
        PendingRecord {
            kind,
            parts,
            length,
            payload: payload_check(parts),
            framed: framed_bytes(length),
            durable: self.core.durable(),
            on_reserved,
        }
    }

    /// Takes `bytes` of space in the buffer, or nothing. Never waits.
    ///
    /// A thread that is about to acquire a latch takes the space of its record before, so that its
    /// insert does not wait for a device while other threads wait for the latch. After the insert,
    /// or instead of it, the thread [gives the space back](Self::give_back_space). Records count as
    /// [`framed_bytes`] says. Threads that insert without taking space before may use up what was
    /// taken; then an insert waits nevertheless. A record that takes more than a quarter of the
    /// buffer does not go through the buffer, so any number of such bytes is granted.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use foxton_log::{Log, LogOptions, device::memory::MemoryDevice};
    /// # use foxton_log::format::record::framed_bytes;
    /// # let worker = foxton_sync::worker::Workers::new().worker();
    /// # let device = std::sync::Arc::new(MemoryDevice::new());
    /// # let nothing = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    /// # let (log, _) = Log::open(device, LogOptions::tiny(), [1; 16], nothing)?;
    /// let bytes = framed_bytes(5);
    /// while !log.try_take_space(&worker, bytes) {
    ///     log.wait_for_space(&worker, bytes)?;
    /// }
    /// // A latch is acquired here.
    /// let inserted = log.insert(&worker, 1, &[b"hello"]);
    /// log.give_back_space(bytes);
    /// assert!(inserted.is_ok());
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    #[must_use = "space that was taken is to be given back"]
    pub fn try_take_space(&self, _: &Worker, bytes: u64) -> bool {
        // A forked child fails at its insert.
        self.process.is_inherited() || self.core.try_take_space(bytes)
    }

    /// Gives back `bytes` of space that were taken. In a forked child it does nothing.
    pub fn give_back_space(&self, bytes: u64) {
        if !self.process.is_inherited() {
            self.core.give_back_space(bytes);
        }
    }

    /// Waits until `bytes` of space are free beside those that threads have taken, or may be.
    ///
    /// # Errors
    ///
    /// If the log has failed or was closed, or its device has no space.
    pub fn wait_for_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        self.check_process()?;
        self.core.wait_for_space(worker, bytes)
    }

    /// Requests that the log is made durable up to `lsn`, or up to its present end if that is less.
    /// Does not wait.
    pub fn flush_to(&self, worker: &Worker, lsn: Lsn) {
        if self.durable() < lsn && !self.process.is_inherited() {
            // A request stays: one for more than the end would make the flusher sync all later
            // records at once.
            let lsn = lsn.min(self.end(worker));
            self.core.request(worker, Milestone::Durable, lsn);
        }
    }

    /// Waits until the log is durable up to `lsn`. If `lsn` is not inserted yet, it waits until
    /// that is inserted and made durable, or the log ends.
    pub fn wait_durable(&self, worker: &Worker, lsn: Lsn) -> Result<(), LogError> {
        let mut pending = LogWait::default();
        let Some(wait) = self.begin(worker, Milestone::Durable, lsn, &mut pending)? else {
            return Ok(());
        };
        let verdict = wait.0.wait(wait.1, None);
        let verdict = verdict.expect("a wait without a deadline ends with a verdict");
        let waiters = &self.core.writer.waiters;
        waiters.wait_result(worker, verdict == REACHED)
    }

    /// As [`wait_durable`](Self::wait_durable), for an async task. `pending` keeps the wait between
    /// polls; dropping it cancels the wait.
    pub fn poll_durable(
        &self,
        worker: &Worker,
        pending: &mut LogWait,
        lsn: Lsn,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), LogError>> {
        self.poll(worker, Milestone::Durable, pending, lsn, context)
    }

    /// Returns once the log is handed to the operating system up to `lsn`, or up to its present end
    /// if that is less. It will be synced within the interval of the options. This thread writes,
    /// unless another thread is writing; then it waits for that thread.
    pub fn wait_written(&self, worker: &Worker, lsn: Lsn) -> Result<(), LogError> {
        self.check_process()?;
        self.core.write_to(worker, lsn)?;
        if self.durable() < lsn {
            self.core.sync_soon(worker);
        }
        Ok(())
    }

    /// As [`wait_written`](Self::wait_written), but returns `None` if it would have to wait for
    /// another thread; nothing is promised then.
    ///
    /// Other threads may wait for bytes that this call has written.
    /// [`wake_waiters`](Self::wake_waiters) wakes them, so that the caller can release its locks
    /// first. Without it, the next writing thread wakes them, or the flusher within the interval.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use foxton_log::{Log, LogOptions, device::memory::MemoryDevice};
    /// # let worker = foxton_sync::worker::Workers::new().worker();
    /// # let device = std::sync::Arc::new(MemoryDevice::new());
    /// # let nothing = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    /// # let (log, _) = Log::open(device, LogOptions::tiny(), [1; 16], nothing)?;
    /// let end = log.insert(&worker, 1, &[b"hello"])?;
    /// match log.try_written(&worker, end)? {
    ///     Some(wakeups) => log.wake_waiters(&worker, wakeups),
    ///     None => log.wait_written(&worker, end)?,
    /// }
    /// assert!(log.written() >= end);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn try_written(
        &self,
        worker: &Worker,
        lsn: Lsn,
    ) -> Result<Option<PendingWakeups>, LogError> {
        self.check_process()?;
        let wakeups = self.core.try_write_to(worker, lsn)?;
        if wakeups.is_some() && self.durable() < lsn {
            self.core.sync_soon(worker);
        }
        Ok(wakeups)
    }

    /// Wakes the threads that wait for what [`try_written`](Self::try_written) has written.
    pub fn wake_waiters(&self, worker: &Worker, wakeups: PendingWakeups) {
        if !self.process.is_inherited() {
            self.core.wake_waiters(worker, wakeups);
        }
    }

    /// As [`wait_written`](Self::wait_written), for an async task; the flusher writes.
    pub fn poll_written(
        &self,
        worker: &Worker,
        pending: &mut LogWait,
        lsn: Lsn,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), LogError>> {
        let polled = self.poll(worker, Milestone::Written, pending, lsn, context);
        if matches!(polled, Poll::Ready(Ok(()))) && self.durable() < lsn {
            self.core.sync_soon(worker);
        }
        polled
    }

    /// Returns how far the log is durable: safe from a power cut.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.core.durable()
    }

    /// Returns how far the log is written: handed to the operating system.
    pub fn written(&self) -> Lsn {
        self.core.written()
    }

    /// Returns where the last record ends; 0 in a forked child.
    pub fn end(&self, worker: &Worker) -> Lsn {
        if self.process.is_inherited() {
            return Lsn::ZERO;
        }
        self.core.buffer.end(worker).0
    }

    /// Returns counts since the log was opened. Each is exact, but they are not of one moment. A
    /// forked child gets zeros.
    pub fn stats(&self, worker: &Worker) -> LogStats {
        if self.process.is_inherited() {
            return LogStats::default();
        }
        let (end, records) = self.core.buffer.end(worker);
        let (writes, syncs) = self.core.calls(worker);
        LogStats {
            records,
            bytes: end.since(self.core.begin()),
            writes,
            syncs,
        }
    }

    /// Returns the error that all further commits get, if something has failed.
    pub fn check(&self) -> Result<(), LogError> {
        self.check_process()?;
        self.core.writer.waiters.failure()
    }

    /// Refuses a call in a forked child, before it touches anything that other threads may have
    /// left locked.
    #[inline]
    fn check_process(&self) -> Result<(), LogError> {
        match self.process.is_inherited() {
            false => Ok(()),
            true => Err(LogError::Forked),
        }
    }

    /// Ends the log as a failed write does: it accepts nothing more and returns the reason. For a
    /// program that keeps other files in the log's directory and no longer knows what the directory
    /// holds.
    pub fn fail(&self, worker: &Worker, failure: Failure) -> LogError {
        match self.check_process() {
            Ok(()) => self.core.fail(worker, failure),
            Err(forked) => forked,
        }
    }

    /// Refuses further records, makes everything durable, and marks the log as closed. Calling it
    /// again does nothing.
    pub fn close(&self, worker: &Worker) -> Result<(), LogError> {
        self.check_process()?;
        let mut flusher = shim::lock(&self.flusher);
        let Some(thread) = flusher.take() else {
            return self.core.writer.waiters.failure();
        };
        self.core.stop_flusher(worker);
        // If the flusher panicked, it has set the failure that `close` checks.
        let _ = thread.join();
        self.core.close(worker)
    }

    fn poll(
        &self,
        worker: &Worker,
        milestone: Milestone,
        pending: &mut LogWait,
        lsn: Lsn,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), LogError>> {
        let Some((parker, ticket, _)) = self.begin(worker, milestone, lsn, pending)? else {
            return Poll::Ready(Ok(()));
        };
        let verdict = std::task::ready!(parker.poll(*ticket, context));
        pending.0 = None;
        let waiters = &self.core.writer.waiters;
        Poll::Ready(waiters.wait_result(worker, verdict == REACHED))
    }

    /// Returns the wait kept in `pending`, begun if need be, or `None` if there is nothing to wait
    /// for.
    fn begin<'p>(
        &self,
        worker: &Worker,
        milestone: Milestone,
        lsn: Lsn,
        pending: &'p mut LogWait,
    ) -> Result<Option<&'p PendingWait>, LogError> {
        self.check_process()?;
        if pending.0.is_none() {
            let waiters = &self.core.writer.waiters;
            if waiters.position(milestone) >= lsn {
                return Ok(None);
            }
            let Some((parker, ticket)) = waiters.enqueue(worker, milestone, lsn) else {
                let reached = waiters.position(milestone) >= lsn;
                return waiters.wait_result(worker, reached).map(|()| None);
            };
            self.core.request(worker, milestone, lsn);
            worker.account().passed(&WAKING);
            pending.0 = Some((parker, ticket, self.process));
        }
        Ok(pending.0.as_ref())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if self.process.is_inherited() {
            // There is no such thread, and its handle must not be used either.
            std::mem::forget(shim::get_mut(&mut self.flusher).take());
            return;
        }
        if shim::lock(&self.flusher).is_some() {
            // An error is dropped: a program that wants it closes the log first.
            let _ = self.close(&self.workers.worker());
        }
    }
}

/// A wait of an async task for the log. Dropping it cancels the wait, but not in a forked child.
#[derive(Debug, Default)]
pub struct LogWait(Option<PendingWait>);

/// The parker of a wait, its ticket, and the process that waits.
type PendingWait = (shim::Arc<Parker>, Ticket, ProcessStamp);

impl Drop for LogWait {
    fn drop(&mut self) {
        if let Some((parker, ticket, process)) = self.0.take()
            && !process.is_inherited()
        {
            parker.disarm(ticket);
        }
    }
}

#[cfg(all(test, not(any(loom, shuttle))))]
mod tests {
    use super::*;
    use crate::device::memory::MemoryDevice;
    use std::convert::Infallible;
    use std::task::Waker;

    /// A holder of the writer lock may wait for other threads meanwhile, or write for long.
    #[test]
    fn a_wait_for_written_bytes_ends_while_the_writer_lock_is_held() {
        let device = Arc::new(MemoryDevice::new());
        let visit = &mut |_: RecordView<'_>| Ok::<_, Infallible>(());
        let (log, _) = Log::open(device, LogOptions::tiny(), [1; 16], visit).unwrap();
        let worker = log.workers.worker();
        let mut guard = log.core.writer.acquire(&worker);
        let end = log.insert(&worker, 1, &[b"waited for"]).unwrap();
        let (mut pending, context) = (LogWait::default(), &mut Context::from_waker(Waker::noop()));
        let poll = &mut || log.poll_written(&worker, &mut pending, end, context);
        assert!(poll().is_pending());
        log.core.write_up_to(&worker, &mut guard, end).unwrap();
        assert!(matches!(poll(), Poll::Ready(Ok(()))));
        drop(guard);
    }
}
