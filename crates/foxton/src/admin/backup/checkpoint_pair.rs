//! Checkpoints of a copy: that of tables in memory, and that of pages if there are any.

use foxton_log::Lsn;
use foxton_log::device::Device;
use foxton_store::paged::recovery::ANCHOR_FILE;
use foxton_store::paged::recovery::anchor::Anchor;
use foxton_store::paged::recovery::error::AnchorError;

use super::error::CopyFailure;
use crate::checkpoint::manifest::Manifest;

impl From<AnchorError> for CopyFailure {
    fn from(error: AnchorError) -> CopyFailure {
        match error {
            AnchorError::Device { operation, source } => {
                CopyFailure::source(operation, ANCHOR_FILE)(source)
            }
            AnchorError::Newer(version) => {
                CopyFailure::Newer(format!("file {ANCHOR_FILE} has format {version}"))
            }
            other => CopyFailure::damaged(ANCHOR_FILE, 0, &other.to_string()),
        }
    }
}

/// See the [module](self).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CheckpointPair {
    pub(crate) manifest: Manifest,
    pub(crate) anchor: Option<Anchor>,
}

impl CheckpointPair {
    /// Returns those of a directory whose manifest was read already.
    pub(super) fn read(
        manifest: Manifest,
        device: &dyn Device,
        identity: &[u8; 16],
    ) -> Result<CheckpointPair, CopyFailure> {
        let anchor = Anchor::read(device, identity)?;
        Ok(CheckpointPair { manifest, anchor })
    }

    /// Returns the position from which a restart needs the log.
    pub(crate) fn needed_from(&self) -> Lsn {
        let pages = self.anchor.map_or(Lsn::MAX, |anchor| anchor.needed_from);
        self.manifest.redo_from.min(pages)
    }

    /// Returns the position to which the log was durable at least.
    pub(crate) fn durable(&self) -> Lsn {
        let pages = self.anchor.map_or(Lsn::ZERO, |anchor| anchor.durable);
        self.manifest.checkpoint_lsn.max(pages)
    }
}
