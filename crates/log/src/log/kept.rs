//! Space of the device that a log keeps for records that must not be refused.

use foxton_sync::worker::Worker;

use super::Log;
use crate::format::error::LogError;
use crate::format::lsn::Lsn;

impl Log {
    /// Keeps `bytes` of the device more, for records of [`insert_kept`](Self::insert_kept). They
    /// are kept until they are used or [released](Self::release_kept_space).
    ///
    /// # Errors
    ///
    /// If the log has failed or was closed. [`LogError::NotInserted`], if the device has no space;
    /// then none is kept.
    pub fn keep_space(&self, worker: &Worker, bytes: u64) -> Result<(), LogError> {
        self.check_process()?;
        self.core.keep_space(worker, bytes)
    }

    /// Keeps `bytes` fewer. In a forked child it does nothing.
    ///
    /// # Panics
    ///
    /// If fewer are kept.
    pub fn release_kept_space(&self, worker: &Worker, bytes: u64) {
        if !self.process.is_inherited() {
            self.core.release_kept_space(worker, bytes);
        }
    }

    /// As [`insert`](Self::insert), of a record that uses up to `kept` of the
    /// [kept](Self::keep_space) bytes if the device has no other space. Also returns how many it
    /// has used: none, most often.
    ///
    /// ```
    /// # use std::convert::Infallible;
    /// # use foxton_log::{Log, LogOptions, device::memory::MemoryDevice};
    /// # use foxton_log::format::record::framed_bytes;
    /// # let worker = foxton_sync::worker::Workers::new().worker();
    /// # let device = std::sync::Arc::new(MemoryDevice::new());
    /// # let nothing = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    /// # let (log, _) = Log::open(device, LogOptions::tiny(), [1; 16], nothing)?;
    /// let bytes = framed_bytes(4);
    /// log.keep_space(&worker, bytes)?;
    /// // The device may become full here.
    /// let (_, used) = log.insert_kept(&worker, 1, &[b"undo"], bytes)?;
    /// log.release_kept_space(&worker, bytes - used);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn insert_kept(
        &self,
        worker: &Worker,
        kind: u8,
        parts: &[&[u8]],
        kept: u64,
    ) -> Result<(Lsn, u64), LogError> {
        let length = self.check_record(kind, parts)?;
        let record = self.pending(kind, parts, length, None);
        match self.core.insert(worker, &record) {
            Err(LogError::NotInserted(_)) if record.framed <= kept => {
                let inserted = self.core.insert_kept(worker, &record);
                inserted.map(|end| (end, record.framed))
            }
            inserted => inserted.map(|end| (end, 0)),
        }
    }
}
