//! The log as its users see it.

use std::fmt;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::thread::JoinHandle;

use foxton_sync::park::{Parker, Ticket, WAKING};
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

/// What opening a log found and did.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct OpenReport {
    /// What was in the log, and how it ended.
    pub summary: LogSummary,
    /// Bytes at the end that were written and synced again, since nobody could know that they
    /// were durable.
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

/// What a log has done since it was opened.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LogStats {
    /// Records inserted, by workers of one [`Workers`].
    pub records: u64,
    /// Bytes of stream inserted, headers included.
    pub bytes: u64,
    /// Writes to the device.
    pub writes: u64,
    /// Syncs of segment files.
    pub syncs: u64,
}

/// A log that is open for writing.
///
/// Records go into a buffer in memory, in an order that is the order of the log. Two further
/// steps follow, and a committer chooses which to wait for:
///
/// * *written*: handed to the operating system. It survives the end of this process, not of the
///   machine. Whoever waits for it writes the buffer out itself if nobody else is doing so. Within
///   [`LogOptions::sync_interval`] it is synced, too.
/// * *durable*: synced. It survives a power cut. The flusher syncs, for all who wait together.
///
/// A record nobody waits for is written when the buffer has filled by a quarter, and synced when its segment
/// is full or the log is closed.
///
/// Dropping the log closes it, and cannot tell whether that went well; [`close`](Self::close)
/// can.
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
/// let (log, _) = Log::open(device.clone(), LogOptions::tiny(), identity, &mut |_| Ok::<_, Infallible>(()))?;
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
    /// Takes the directory for itself, reads the log of the database `identity` from its
    /// beginning, calling `visit` for each record, and makes its end fit to be written on. A
    /// directory without a log gets an empty one.
    ///
    /// An error leaves what was in the log as it was.
    pub fn open<E>(
        device: Arc<dyn Device>,
        options: LogOptions,
        identity: [u8; 16],
        visit: &mut dyn FnMut(RecordView<'_>) -> Result<(), E>,
    ) -> Result<(Log, OpenReport), OpenError<E>> {
        let start = Start::default();
        Log::open_from(device, options, identity, start, visit, &mut || Ok(()))
    }

    /// As [`open`](Self::open), reading from `start` on. For whoever keeps elsewhere what the
    /// records before it said, in a checkpoint that is durable. `taken_in` is called when the last record
    /// was visited and nothing has been changed yet; an error of it leaves everything as it was, as one of
    /// `visit` does.
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
        };
        Ok((
            log,
            OpenReport {
                summary,
                rewritten_bytes,
            },
        ))
    }

    /// Appends a record made of `parts` and returns where it ends. Waits for nothing but room in
    /// the buffer.
    ///
    /// `kind` is the caller's, from 1 to 239. A record may have up to [`MAX_PAYLOAD`] bytes; one
    /// that takes more than a quarter of the buffer is written at once, without being copied.
    pub fn insert(&self, worker: &Worker, kind: u8, parts: &[&[u8]]) -> Result<Lsn, LogError> {
        if kind == 0 || kind >= FIRST_OWN_KIND {
            return Err(LogError::Kind(kind));
        }
        let length = parts.iter().map(|part| part.len()).sum();
        if length > MAX_PAYLOAD {
            return Err(LogError::TooLarge { bytes: length });
        }
        let (payload, framed) = (payload_check(parts), framed_bytes(length));
        self.core.insert(
            worker,
            &PendingRecord {
                kind,
                parts,
                length,
                payload,
                framed,
                durable: self.core.durable(),
            },
        )
    }

    /// Asks for the log to be made durable up to `lsn`, or up to where it ends now if that is less, and does not wait.
    pub fn flush_to(&self, worker: &Worker, lsn: Lsn) {
        if self.durable() < lsn {
            // What is asked for stays so: with more than there is, all that comes later would be synced at once.
            let lsn = lsn.min(self.end(worker));
            self.core.request(worker, Milestone::Durable, lsn);
        }
    }

    /// Waits until the log is durable up to `lsn`; what nobody has inserted yet is waited for until whoever inserts it has
    /// it made durable, or the log ends.
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

    /// Like [`wait_durable`](Self::wait_durable) for an async task. `pending` keeps the wait
    /// between polls; dropping it withdraws the wait.
    pub fn poll_durable(
        &self,
        worker: &Worker,
        pending: &mut LogWait,
        lsn: Lsn,
        context: &mut Context<'_>,
    ) -> Poll<Result<(), LogError>> {
        self.poll(worker, Milestone::Durable, pending, lsn, context)
    }

    /// Sees to it that the log is handed to the operating system up to `lsn`, or up to where it ends now if that is
    /// less, and will be synced within the interval of the options. Writes it in this thread if nobody else is doing so,
    /// and else waits for who is.
    pub fn wait_written(&self, worker: &Worker, lsn: Lsn) -> Result<(), LogError> {
        self.core.write_to(worker, lsn)?;
        if self.durable() < lsn {
            self.core.sync_soon(worker);
        }
        Ok(())
    }

    /// As [`wait_written`](Self::wait_written), unless it would have to wait for another thread: `None` then, and
    /// nothing is promised. Others may wait for what it has written. They are told by [`wake_waiters`](Self::wake_waiters), which wakes
    /// them, so that the caller can first give back what it holds; without it whoever writes next tells them, or the
    /// flusher within the interval.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use foxton_log::{Log, LogOptions, device::memory::MemoryDevice};
    /// # let worker = foxton_sync::worker::Workers::new().worker();
    /// # let device = std::sync::Arc::new(MemoryDevice::new());
    /// # let (log, _) = Log::open(device, LogOptions::tiny(), [1; 16], &mut |_| Ok::<_, Infallible>(()))?;
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
        let wakeups = self.core.try_write_to(worker, lsn)?;
        if wakeups.is_some() && self.durable() < lsn {
            self.core.sync_soon(worker);
        }
        Ok(wakeups)
    }

    /// Wakes those who waited for what [`try_written`](Self::try_written) has written.
    pub fn wake_waiters(&self, worker: &Worker, wakeups: PendingWakeups) {
        self.core.wake_waiters(worker, wakeups);
    }

    /// Like [`wait_written`](Self::wait_written) for an async task; it is the flusher that writes.
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

    /// How far the log is safe from a power cut.
    #[inline]
    pub fn durable(&self) -> Lsn {
        self.core.durable()
    }

    /// How far the log has been handed to the operating system.
    pub fn written(&self) -> Lsn {
        self.core.written()
    }

    /// Where the last record inserted ends.
    pub fn end(&self, worker: &Worker) -> Lsn {
        self.core.buffer.end(worker).0
    }

    /// Counts since the log was opened, each exact, but not all of one moment.
    pub fn stats(&self, worker: &Worker) -> LogStats {
        let (end, records) = self.core.buffer.end(worker);
        let (writes, syncs) = self.core.calls(worker);
        LogStats {
            records,
            bytes: end.since(self.core.begin()),
            writes,
            syncs,
        }
    }

    /// The error that all further commits get, if something has failed.
    pub fn check(&self) -> Result<(), LogError> {
        self.core.writer.waiters.failure()
    }

    /// Ends the log as a failed write does: it accepts nothing more, and says why. For whoever keeps
    /// other files in the log's directory and has been told that what the directory holds is unknown.
    pub fn fail(&self, worker: &Worker, failure: Failure) -> LogError {
        self.core.fail(worker, failure)
    }

    /// Takes no more records, makes everything durable, and marks the log as closed. Calling it
    /// again does nothing.
    pub fn close(&self, worker: &Worker) -> Result<(), LogError> {
        let mut flusher = shim::lock(&self.flusher);
        let Some(thread) = flusher.take() else {
            return self.core.writer.waiters.failure();
        };
        self.core.stop_flusher(worker);
        // A flusher that panicked has left its mark in what `close` checks.
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
        let Some((parker, ticket)) = self.begin(worker, milestone, lsn, pending)? else {
            return Poll::Ready(Ok(()));
        };
        let verdict = std::task::ready!(parker.poll(*ticket, context));
        pending.0 = None;
        let waiters = &self.core.writer.waiters;
        Poll::Ready(waiters.wait_result(worker, verdict == REACHED))
    }

    /// The wait kept in `pending`, begun if need be, or `None` if there is nothing to wait for.
    fn begin<'p>(
        &self,
        worker: &Worker,
        milestone: Milestone,
        lsn: Lsn,
        pending: &'p mut LogWait,
    ) -> Result<Option<&'p (shim::Arc<Parker>, Ticket)>, LogError> {
        if pending.0.is_none() {
            let waiters = &self.core.writer.waiters;
            if waiters.position(milestone) >= lsn {
                return Ok(None);
            }
            let Some(wait) = waiters.enqueue(worker, milestone, lsn) else {
                let reached = waiters.position(milestone) >= lsn;
                return waiters.wait_result(worker, reached).map(|()| None);
            };
            self.core.request(worker, milestone, lsn);
            worker.account().passed(&WAKING);
            pending.0 = Some(wait);
        }
        Ok(pending.0.as_ref())
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        if shim::lock(&self.flusher).is_some() {
            // An error stays where it is: whoever cares closes the log first.
            let _ = self.close(&self.workers.worker());
        }
    }
}

/// A wait of an async task for the log. Dropping it withdraws the wait.
#[derive(Debug, Default)]
pub struct LogWait(Option<(shim::Arc<Parker>, Ticket)>);

impl Drop for LogWait {
    fn drop(&mut self) {
        if let Some((parker, ticket)) = self.0.take() {
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

    /// Whoever has the output may go on to wait for others with it, or to write for long.
    #[test]
    fn who_waits_for_what_is_written_hears_of_it_while_the_output_is_taken() {
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
