//! Audit: reading a whole log and reporting all of its damage.
//!
//! A [reader](crate::read::reader) stops at the first damage, because nothing behind it can be
//! relied on. The audit continues: behind a bad position it looks for the next good record and
//! reads from there. So its report shows how much is lost, and where.
//!
//! # Invariants
//!
//! * I1 Nothing is changed.
//! * I2 Everything that a reader would refuse is found: there are no findings exactly if the log
//!   can be opened.
//! * I3 A torn end, where a log ends that was not closed, is no finding.

use std::convert::Infallible;

use crate::device::Device;
use crate::format::error::{Corruption, CorruptionKind, Failure, OpenError};
use crate::format::lsn::Lsn;
use crate::format::record::{ALIGNMENT, FIRST_OWN_KIND, Flaw, HeaderCodec, RecordView};
use crate::format::segment::{self, HeaderFlaw, SegmentExtent};
use crate::read::reader::{self, LogSummary, Start};
use crate::read::stream::Stream;

/// Number of findings after which the rest is only counted.
const MOST: usize = 1_000;

/// How many times the length of the log may be read in search of good records behind bad ones.
/// Damage needs one or two. Forged headers, each of a record as long as the file, could otherwise
/// cost one reading of the file each.
const SEARCH_FACTOR: u64 = 16;

/// A damaged position.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct AuditFinding {
    /// Name of the file.
    pub file: String,
    /// Offset in the file, in bytes.
    pub offset: u64,
    /// Position in the log.
    pub lsn: Lsn,
    /// Description of the damage.
    pub what: String,
    /// Position in the log of the next good record, if there is one.
    pub good_again: Option<Lsn>,
}

/// Result of an audit.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Audit {
    /// Damage, in order; empty if the log can be opened.
    pub findings: Vec<AuditFinding>,
    /// Number of findings beyond the first thousand, which are not listed.
    pub left_out: u64,
    /// How a reader sees the log, if there is no damage.
    pub summary: Option<LogSummary>,
    /// Number of good records, those behind damage included.
    pub records: u64,
    /// Number of segment files.
    pub segments: usize,
}

/// Audits the log of the database `identity`, from `start` on, and calls `visit` for each good
/// record before the first damage.
///
/// ```
/// use std::convert::Infallible;
/// use std::sync::Arc;
/// use foxton_log::device::{Device, memory::MemoryDevice};
/// use foxton_log::read::audit::audit;
/// use foxton_log::format::segment;
/// use foxton_log::{Log, LogOptions, Lsn, Start};
/// use foxton_sync::worker::Workers;
///
/// let (device, worker) = (Arc::new(MemoryDevice::new()), Workers::new().worker());
/// let identity = *b"an identity of16";
/// let (log, _) = Log::open(device.clone(), LogOptions::tiny(), identity, &mut |_| {
///     Ok::<_, Infallible>(())
/// })?;
/// for _ in 0..3 {
///     log.insert(&worker, 1, &[b"forty bytes with the header"])?;
/// }
/// log.close(&worker)?;
/// assert!(audit(&*device, &identity, Start::default(), &mut |_| {})?.findings.is_empty());
///
/// let file = device.open(&segment::name(Lsn::ZERO))?;
/// file.write_at(b"?", segment::HEADER_BYTES + 60)?;
/// let found = audit(&*device, &identity, Start::default(), &mut |_| {})?.findings;
/// assert_eq!(found.len(), 1);
/// assert_eq!((found[0].lsn, found[0].good_again), (Lsn::new(56), Some(Lsn::new(112))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
///
/// # Errors
///
/// If the device fails, or the format of a segment is unknown.
pub fn audit(
    device: &dyn Device,
    identity: &[u8; 16],
    start: Start,
    visit: &mut dyn FnMut(RecordView<'_>),
) -> Result<Audit, OpenError<Infallible>> {
    let mut audit = Audit {
        findings: Vec::new(),
        left_out: 0,
        summary: None,
        records: 0,
        segments: 0,
    };
    let read = reader::read(device, identity, start, &mut |record| {
        audit.records += 1;
        visit(record);
        Ok::<(), Infallible>(())
    });
    let first = match read {
        Ok(summary) => {
            audit.segments = summary.segments;
            audit.summary = Some(summary);
            return Ok(audit);
        }
        Err(OpenError::Corrupt(corruption)) => *corruption,
        Err(OpenError::Foreign { file }) => {
            let lsn = segment::first_of(&file).unwrap_or_default();
            audit.note(file, 0, lsn, "it belongs to another database", None);
            return Ok(audit);
        }
        Err(other) => return Err(other),
    };
    match first.damage {
        CorruptionKind::Record(_) | CorruptionKind::Kind(_) => {
            audit.records_from(device, identity, start.from, &first)?
        }
        _ => audit.files(device, identity, start.from, &first)?,
    }
    Ok(audit)
}

impl Audit {
    fn note(&mut self, file: String, offset: u64, lsn: Lsn, what: &str, good_again: Option<Lsn>) {
        if self.findings.len() < MOST {
            self.findings.push(AuditFinding {
                file,
                offset,
                lsn,
                what: what.to_owned(),
                good_again,
            });
        } else {
            self.left_out += 1;
        }
    }

    /// Continues behind the first bad record, to the end.
    fn records_from(
        &mut self,
        device: &dyn Device,
        identity: &[u8; 16],
        from: Lsn,
        first: &Corruption,
    ) -> Result<(), OpenError<Infallible>> {
        let mut stream = Stream::open::<Infallible>(device, identity, from)?;
        let codec = HeaderCodec::new(identity);
        let length = stream.end().since(stream.begin().unwrap_or_default());
        let mut budget = SEARCH_FACTOR.saturating_mul(length);
        let mut bad = first.clone();
        loop {
            let what = match bad.damage {
                CorruptionKind::Record(flaw) => flaw.to_string(),
                CorruptionKind::Kind(kind) => {
                    format!("this version does not know records of kind {kind}")
                }
                _ => String::new(),
            };
            let good = next_good(&mut stream, codec, bad.lsn, &mut budget)?;
            // A log that was not closed may have any bytes behind its last good record.
            let is_torn = good.is_none() && bad.lsn != first.lsn;
            if !is_torn {
                self.note(bad.file, bad.offset, bad.lsn, &what, good);
            }
            let Some(mut at) = good else {
                return Ok(());
            };
            let damage = loop {
                match stream.record(codec, at)? {
                    Err(flaw) => break CorruptionKind::Record(flaw),
                    Ok(record) if record.kind < FIRST_OWN_KIND => {
                        self.records += 1;
                        at = record.end;
                    }
                    Ok(record) => at = record.end,
                }
            };
            if damage == CorruptionKind::Record(Flaw::Empty)
                && next_good(&mut stream, codec, at, &mut budget)?.is_none()
            {
                return Ok(());
            }
            bad = stream.corruption(at, damage);
        }
    }

    /// Inspects the header of each segment, and whether the segments follow each other.
    fn files(
        &mut self,
        device: &dyn Device,
        identity: &[u8; 16],
        from: Lsn,
        first: &Corruption,
    ) -> Result<(), OpenError<Infallible>> {
        let names = device
            .list()
            .map_err(Failure::of("list", "the directory"))?;
        let firsts = segment::firsts_from(&names, from);
        self.segments = firsts.len();
        let mut limit: Option<Lsn> = None;
        for &at in &firsts {
            let name = segment::name(at);
            if limit.is_some_and(|limit| limit != at) {
                let what = "the segment does not begin where the one before it ends";
                self.note(name.clone(), 0, at, what, None);
            }
            let file = device.open(&name).map_err(Failure::of("open", &name))?;
            let opened = SegmentExtent::of(&*file, identity, at);
            limit = match opened.map_err(Failure::of("read", &name))? {
                Ok(extent) => {
                    let is_last = Some(&at) == firsts.last();
                    if !is_last && extent.stored < extent.limit() {
                        let what = "the segment ends too early";
                        self.note(
                            name,
                            extent.offset_of(extent.stored),
                            extent.stored,
                            what,
                            None,
                        );
                    }
                    Some(extent.limit())
                }
                Err(flaw) => {
                    let what = match flaw {
                        HeaderFlaw::Foreign => "it belongs to another database",
                        _ => "the checksum of the segment header does not match",
                    };
                    self.note(name, 0, at, what, None);
                    None
                }
            };
        }
        if self.findings.is_empty() {
            // A reader refused this log, so its reason is the finding (I2).
            let Corruption {
                file, offset, lsn, ..
            } = first.clone();
            self.note(file, offset, lsn, &first.to_string(), None);
        }
        Ok(())
    }
}

/// Returns the first position behind `bad` with a good record. Each header with a good checksum
/// costs the length of its payload from `budget`; when the budget is used up, the search ends.
fn next_good(
    stream: &mut Stream<'_>,
    codec: HeaderCodec,
    bad: Lsn,
    budget: &mut u64,
) -> Result<Option<Lsn>, Failure> {
    let mut at = bad.plus(ALIGNMENT);
    while at < stream.end() {
        if let Ok(header) = stream.header(codec, at)? {
            let Some(left) = budget.checked_sub(u64::from(header.length)) else {
                return Ok(None);
            };
            *budget = left;
            if stream.record(codec, at)?.is_ok() {
                return Ok(Some(at));
            }
        }
        at = at.plus(ALIGNMENT);
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::memory::MemoryDevice;
    use crate::format::record::{HEADER_BYTES, RecordHeader, payload_check};
    use crate::format::segment::SegmentFile;

    /// Makes this many good headers, of records that reach to the end and have bad payloads, and
    /// then a good record.
    fn findings(headers: u64) -> Vec<AuditFinding> {
        const IDENTITY: [u8; 16] = [7; 16];
        let (device, codec) = (MemoryDevice::new(), HeaderCodec::new(&IDENTITY));
        let header = |at: u64, length: u32, payload| {
            let durable = Lsn::ZERO;
            let kind = 1;
            codec.encode(
                Lsn::new(at),
                RecordHeader {
                    length,
                    payload,
                    kind,
                    durable,
                },
            )
        };
        let each = HEADER_BYTES as u64;
        let good_at = headers * each;
        let end = good_at + each;
        let mut stream = Vec::new();
        for at in (0..good_at).step_by(HEADER_BYTES) {
            stream.extend(header(at, (end - at - each) as u32, 1));
        }
        stream.extend(header(good_at, 0, payload_check(&[])));
        let segment = SegmentFile::create(&device, &IDENTITY, Lsn::ZERO, 1 << 20, 1 << 20).unwrap();
        segment
            .file
            .write_at(&stream, segment::HEADER_BYTES)
            .unwrap();
        // It had been durable, so a bad record is damage.
        let start = Start {
            from: Lsn::ZERO,
            durable: Lsn::new(end),
        };
        let report = audit(&device, &IDENTITY, start, &mut |_| {}).unwrap();
        report.findings
    }

    #[test]
    fn headers_made_to_be_searched_for_ever_are_given_up_and_damage_is_not() {
        let found = findings(20);
        assert_eq!(found[0].good_again, Some(Lsn::new(480)));
        // The headers ask for 12 * 2^28 bytes to be read, for a file of 1 MiB.
        let found = findings(1 << 14);
        assert_eq!((found.len(), found[0].good_again), (1, None));
    }
}
