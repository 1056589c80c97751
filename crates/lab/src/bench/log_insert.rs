//! The log buffer alone.
//!
//! Threads insert records into a log, of one length or of two mixed, and do nothing else. The log
//! is on a device that discards the data: the flusher takes the records out of the buffer and
//! writes them nowhere. So the measurement covers the insert with its checksums, the copy, and the
//! removal from the buffer, and no disk.
//!
//! Other load on the machine disturbs the processor time of the process less than the wall clock.
//! So each point also shows the processor time of an insert, with the flusher's share.

use std::{convert::Infallible, fmt, sync::Arc, time::Duration, time::Instant};

use foxton::LogBufferKind;
use foxton_log::read::reader;
use foxton_log::{
    Log, LogOptions,
    device::{Device, memory::MemoryDevice, null::NullDevice},
};
use foxton_sync::{
    latch,
    worker::{Worker, Workers},
};
use serde_json::json;

use super::{error::BenchError, lengths::Length, pace::Pace, sweep::Subject};
use crate::{
    driver::Client,
    measure::{
        curve::{Curve, Point},
        machine::Machine,
        outcome::Ended,
        spread::Spread,
    },
    progress::Audience,
    random::Random,
    report::{
        findings::{Block, Findings},
        number::grouped,
        table::Table,
    },
};

/// Settings of the measurement.
#[derive(Debug, Clone)]
pub struct Settings {
    /// The buffers to compare.
    pub buffers: Vec<LogBufferKind>,
    /// Allocation latches, in buffers that have one; each buffer is measured with each.
    pub latches: Vec<latch::Kind>,
    /// Lengths of records; each is measured.
    pub lengths: Vec<Length>,
    /// Numbers of threads, repetitions and times.
    pub pace: Pace,
}

/// Small records that a client inserts between two readings of the clock.
const BATCH: u64 = 100;
/// Bytes of large records between two readings of the clock.
const BATCH_BYTES: u64 = 1 << 20;
const IDENTITY: [u8; 16] = *b"the log measured";
const KIND: u8 = 1;
/// Length of a small record: the document's average.
pub(crate) const SMALL: u32 = 120;

/// Checks every buffer, measures, and reports.
///
/// # Errors
///
/// If the settings contradict each other, or a stream read back differs from the records inserted.
pub fn run(settings: &Settings, audience: Audience) -> Result<Findings, BenchError> {
    let sweep = settings.pace.sweep()?;
    let mut checked = 0;
    for &buffer in &settings.buffers {
        audience.say(&format!("checking the stream of {buffer}"));
        checked += check_stream(buffer).map_err(BenchError::Settings)?;
    }
    let lengths = settings.lengths.iter();
    let mut subjects: Vec<Inserting> = lengths
        .flat_map(|&length| {
            let kinds = kinds(settings).into_iter();
            kinds.map(move |(buffer, latch)| Inserting::new(buffer, latch, length))
        })
        .collect();
    let mut curves = sweep.run(&mut subjects, audience);
    let mut blocks = Vec::new();
    for &length in &settings.lengths {
        let of_size = |subject: &Inserting| subject.length == length;
        let shown: Vec<(&Inserting, &Curve)> = subjects
            .iter()
            .zip(&curves)
            .filter(|(subject, _)| of_size(subject))
            .collect();
        blocks.push(table(length, &shown));
    }
    for (curve, subject) in curves.iter_mut().zip(&subjects) {
        curve.facts = vec![
            ("record_bytes", json!(subject.length.mean())),
            ("inserts_per_transaction", json!(subject.batch())),
        ];
    }
    Ok(Findings {
        workload: "log-insert".to_owned(),
        variant: String::new(),
        title: "Inserting into the log buffer".to_owned(),
        description: "Threads insert records into a log on a device that discards the data, so that the \
                      buffer is measured and no disk. A transaction in the pictures is some 100 inserts, \
                      or fewer if they are a megabyte."
            .to_owned(),
        checked: format!(
            "before, each buffer took records of 0 to 20,000 bytes from 16 threads, {checked} in all, onto a \
             device in memory, and the stream was read back: every record must be there once, complete, at \
             the place that its insert returned, and no other. After each run the log's counts of records \
             and bytes must be those inserted."
        ),
        command: settings.pace.command.clone(),
        settings: [
            vec![
                (
                    "bytes",
                    settings.lengths.iter().map(|one| one.to_json()).collect(),
                ),
                ("device", json!("null")),
            ],
            settings.pace.listed(),
        ]
        .concat(),
        machine: Machine::here(),
        curves,
        timelines: Vec::new(),
        event: None,
        blocks_have_points: true,
        blocks,
    })
}

/// Inserts `inserts` small records with one thread, for callgrind to count.
///
/// # Panics
///
/// If the log cannot be opened, which this device does not cause.
pub fn bare(buffer: LogBufferKind, inserts: u64) {
    let workers = Workers::new();
    let worker = workers.worker();
    let log = open(
        buffer,
        latch::Kind::default(),
        Arc::new(NullDevice::default()),
        &workers,
    );
    let payload = vec![7; SMALL as usize];
    for _ in 0..inserts {
        log.insert(&worker, KIND, &[&payload])
            .expect("this device does not fail");
    }
}

/// Each buffer with each latch, or without one if it allocates without a latch.
fn kinds(settings: &Settings) -> Vec<(LogBufferKind, Option<latch::Kind>)> {
    let latches = |buffer| match buffer {
        LogBufferKind::Hybrid | LogBufferKind::HybridInOrder => vec![None],
        _ => settings.latches.iter().copied().map(Some).collect(),
    };
    let buffers = settings.buffers.iter();
    buffers
        .flat_map(|&buffer| {
            latches(buffer)
                .into_iter()
                .map(move |latch| (buffer, latch))
        })
        .collect()
}

fn open(
    buffer: LogBufferKind,
    latch: latch::Kind,
    device: Arc<dyn Device>,
    workers: &Workers,
) -> Log {
    let mut options = LogOptions::default();
    options.buffer = buffer;
    options.latch = latch;
    options.workers = Some(workers.clone());
    // One segment, so that the end of a segment is not measured.
    options.segment_bytes = 1 << 40;
    let visit = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    let (log, _) = Log::open(device, options, IDENTITY, visit).expect("an empty device opens");
    log
}

/// Inserts records of all sizes from many threads and reads the stream back. Returns their number.
fn check_stream(buffer: LogBufferKind) -> Result<u64, String> {
    const THREADS: u64 = 16;
    const EACH: u64 = 400;
    let device = Arc::new(MemoryDevice::new());
    let workers = Workers::new();
    let mut options = LogOptions::tiny();
    options.buffer = buffer;
    options.buffer_bytes = 64 << 10;
    options.segment_bytes = 1 << 20;
    let visit = &mut |_: foxton_log::RecordView<'_>| Ok::<_, Infallible>(());
    let (log, _) = Log::open(device.clone(), options, IDENTITY, visit)
        .map_err(|error| format!("{buffer}: {error}"))?;
    let insert = |thread: u64, worker: &Worker| {
        let mut random = Random::seeded(&[thread]);
        let one = |_| {
            let length = match random.bits() % 30 {
                0 => random.bits() % 20_000,
                _ => random.bits() % 300,
            };
            let payload: Vec<u8> = (0..length).map(|at| (at ^ thread) as u8).collect();
            let end = log.insert(worker, KIND, &[&payload]);
            end.map(|end| (end, payload))
                .map_err(|error| format!("{buffer}: {error}"))
        };
        (0..EACH).map(one).collect::<Result<Vec<_>, String>>()
    };
    let inserted: Result<Vec<_>, String> = std::thread::scope(|scope| {
        let spawn = |thread| {
            let worker = workers.worker();
            let insert = &insert;
            scope.spawn(move || insert(thread, &worker))
        };
        let threads: Vec<_> = (0..THREADS).map(spawn).collect();
        let joined = threads
            .into_iter()
            .map(|thread| thread.join().expect("inserting does not panic"));
        joined.collect()
    });
    let mut inserted: Vec<_> = inserted?.into_iter().flatten().collect();
    inserted.sort_unstable_by_key(|(end, _)| *end);
    log.close(&workers.worker())
        .map_err(|error| format!("{buffer}: {error}"))?;
    let (mut found, mut wrong) = (inserted.iter(), None);
    let start = reader::Start::default();
    let summary = reader::read(&*device, &IDENTITY, start, &mut |record| {
        let next = found.next();
        if next.is_none_or(|(end, payload)| *end != record.end || payload != record.payload) {
            wrong = wrong.or(Some(record.lsn));
        }
        Ok::<_, Infallible>(())
    });
    summary.map_err(|error| format!("{buffer}: {error}"))?;
    match (wrong, found.next()) {
        (None, None) => Ok(THREADS * EACH),
        (Some(lsn), _) => Err(format!(
            "{buffer}: the record at LSN {lsn} is not the one inserted there"
        )),
        (None, Some((end, _))) => Err(format!("{buffer}: the record that ends at {end} is lost")),
    }
}

/// One buffer, and records of one size.
struct Inserting {
    buffer: LogBufferKind,
    latch: Option<latch::Kind>,
    length: Length,
    run: Option<Arc<Shared>>,
}

/// State shared by the threads of one run.
struct Shared {
    log: Log,
    workers: Workers,
}

impl fmt::Debug for Inserting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} with {}", self.buffer, self.length.words())
    }
}

impl Inserting {
    fn new(buffer: LogBufferKind, latch: Option<latch::Kind>, length: Length) -> Inserting {
        Inserting {
            buffer,
            latch,
            length,
            run: None,
        }
    }

    /// Inserts that the driver counts as one transaction.
    fn batch(&self) -> u64 {
        let most = BATCH_BYTES / u64::from(self.length.longest());
        self.length.whole(most.clamp(1, BATCH))
    }

    /// Bytes of a batch in the log.
    fn framed(&self) -> u64 {
        let lengths = (0..self.batch() as usize).map(|nth| self.length.of(nth));
        lengths
            .map(|bytes| foxton_log::format::record::framed_bytes(bytes as usize))
            .sum()
    }
}

impl Subject for Inserting {
    fn names(&self) -> (String, String) {
        // The default latch is not shown.
        let latch = match self.latch {
            Some(latch) if latch != latch::Kind::default() => latch.to_string(),
            _ => "-".to_owned(),
        };
        (self.buffer.to_string(), latch)
    }

    fn note(&self) -> String {
        self.length.words()
    }

    fn kinds(&self) -> &'static [&'static str] {
        &["inserts"]
    }

    fn clients(&mut self, mpl: u32) -> Vec<Box<dyn Client>> {
        let workers = Workers::new();
        let latch = self.latch.unwrap_or_default();
        let log = open(
            self.buffer,
            latch,
            Arc::new(NullDevice::default()),
            &workers,
        );
        let shared = Arc::new(Shared { log, workers });
        let client = |_| {
            Box::new(Inserter {
                worker: shared.workers.worker(),
                shared: shared.clone(),
                payload: vec![7; self.length.longest() as usize],
                length: self.length,
                batch: self.batch(),
            }) as Box<dyn Client>
        };
        let clients = (0..mpl).map(client).collect();
        self.run = Some(shared);
        clients
    }

    fn check(&mut self) -> Result<(), String> {
        let Some(run) = self.run.take() else {
            return Ok(());
        };
        let worker = run.workers.worker();
        run.log.close(&worker).map_err(|error| error.to_string())?;
        let stats = run.log.stats(&worker);
        if !stats.records.is_multiple_of(self.batch()) {
            return Err(format!("{} records are not whole batches", stats.records));
        }
        if stats.bytes != stats.records / self.batch() * self.framed() {
            return Err(format!(
                "{} bytes for {} records",
                stats.bytes, stats.records
            ));
        }
        Ok(())
    }

    fn diagnose(&self) -> String {
        format!("{self:?}: {:?}", self.run.as_ref().map(|run| &run.log))
    }
}

struct Inserter {
    shared: Arc<Shared>,
    worker: Worker,
    payload: Vec<u8>,
    length: Length,
    batch: u64,
}

impl Client for Inserter {
    fn transaction(&mut self) -> Ended {
        for nth in 0..self.batch as usize {
            let bytes = self.length.of(nth) as usize;
            self.shared
                .log
                .insert(&self.worker, KIND, &[&self.payload[..bytes]])
                .expect("a device that does nothing does not fail");
        }
        Ended::ok(0)
    }
}

/// Megabytes of payload a second, by repetition.
pub(crate) fn megabytes(curve: &Curve, point: &Point) -> Spread {
    let fact = |name| {
        let found = curve.facts.iter().find(|(fact, _)| *fact == name);
        found.and_then(|(_, value)| value.as_f64()).unwrap_or(0.0)
    };
    let each = fact("record_bytes") * fact("inserts_per_transaction") / 1e6;
    Spread::new(point.runs.iter().map(|run| run.tps() * each))
}

/// Megabytes a second of copying pieces of this size from one place to places all over a buffer.
fn copying(bytes: u32) -> f64 {
    let source = vec![7_u8; bytes as usize];
    let mut target = vec![1_u8; LogOptions::default().buffer_bytes];
    let mut copied = 0_u64;
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(60) {
        for piece in target.chunks_exact_mut(source.len()) {
            piece.copy_from_slice(&source);
            copied += u64::from(bytes);
        }
        std::hint::black_box(&mut target);
    }
    copied as f64 / 1e6 / began.elapsed().as_secs_f64()
}

fn table(length: Length, shown: &[(&Inserting, &Curve)]) -> Block {
    let bytes = length.mean();
    let mut table = Table::new([
        "buffer",
        "latch",
        "threads",
        "inserts/s",
        "MB/s",
        "min",
        "max",
        "of copying",
        "CPU ns per insert",
        "of the peak",
    ]);
    let copying = copying(bytes);
    for (subject, curve) in shown {
        let batch = subject.batch() as f64;
        let peak = curve.peak().map_or(0.0, |peak| peak.tps().median());
        for point in &curve.points {
            let inserts = point.tps().median() * batch;
            let megabytes = |tps: f64| tps * batch * f64::from(bytes) / 1e6;
            let tps = point.tps();
            table.row([
                subject.buffer.to_string(),
                subject
                    .latch
                    .map_or("-".to_owned(), |latch| latch.to_string()),
                point.mpl.to_string(),
                grouped(inserts),
                grouped(megabytes(tps.median())),
                grouped(megabytes(tps.min())),
                grouped(megabytes(tps.max())),
                format!("{:.0} %", megabytes(tps.median()) / copying * 100.0),
                cpu_nanos(point, batch).map_or("-".to_owned(), |nanos| format!("{nanos:.0}")),
                format!("{:.2}", tps.median() / peak.max(1e-9)),
            ]);
        }
    }
    Block {
        title: format!("Records of {}", length.words()),
        note: format!(
            "Median and extremes of the repetitions. One thread that only copies pieces of {bytes} bytes from \
             one place to places all over 16 MiB does {} MB/s. CPU is the time of all threads of the process, \
             with the flusher.",
            grouped(copying)
        ),
        table,
    }
}

/// Processor time of the whole process for each insert, over all repetitions.
fn cpu_nanos(point: &Point, batch: f64) -> Option<f64> {
    let (mut busy, mut inserts) = (0.0, 0.0);
    for run in &point.runs {
        let usage = run.usage?;
        busy += (usage.user + usage.kernel).as_nanos() as f64;
        inserts += run.tally.committed() as f64 * batch;
    }
    (inserts > 0.0).then(|| busy / inserts)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::{data, terminal};

    fn inserting(length: Length) -> Inserting {
        Inserting::new(LogBufferKind::Hybrid, None, length)
    }

    #[test]
    fn records_inserted_are_those_that_the_log_counts() {
        for length in [Length::Same(120), Length::Mixed] {
            let mut inserting = inserting(length);
            let mut clients = inserting.clients(2);
            for client in &mut clients {
                (0..3).for_each(|_| drop(client.transaction()));
            }
            drop(clients);
            let run = inserting.run.as_ref().unwrap();
            let stats = run.log.stats(&run.workers.worker());
            assert_eq!(stats.records, 2 * 3 * inserting.batch());
            assert_eq!(inserting.check(), Ok(()));
        }
    }

    #[test]
    fn records_of_another_length_or_number_are_noticed() {
        let checked = |short: u64| {
            let mut inserting = inserting(Length::Mixed);
            inserting.clients(1).remove(0).transaction();
            let run = inserting.run.as_ref().unwrap();
            let worker = run.workers.worker();
            for _ in 0..short {
                run.log.insert(&worker, KIND, &[&[7; 40]]).unwrap();
            }
            inserting.check()
        };
        assert_eq!(checked(0), Ok(()));
        let batch = inserting(Length::Mixed).batch();
        let what = checked(batch).unwrap_err();
        assert!(
            what.contains(&format!("bytes for {} records", 2 * batch)),
            "{what}"
        );
        let what = checked(1).unwrap_err();
        assert!(what.contains("not whole batches"), "{what}");
    }

    #[test]
    fn records_of_two_lengths_stand_beside_records_of_their_average() {
        let settings = Settings {
            buffers: vec![LogBufferKind::Hybrid],
            latches: vec![latch::Kind::default()],
            lengths: vec![Length::Mixed, Length::Same(120)],
            pace: Pace {
                threads: vec![1],
                reps: 1,
                ramp: Duration::ZERO,
                window: Duration::from_millis(20),
                command: String::new(),
            },
        };
        let findings = run(&settings, Audience::Nobody).expect("the settings are sound");
        assert_eq!(findings.failure(), None);
        let text = terminal::text(&findings);
        for words in ["Records of 40 and 264 bytes", "Records of 120 bytes"] {
            assert!(text.contains(words), "{text}");
        }
        let records: serde_json::Value = serde_json::from_str(&data::json(&findings)).unwrap();
        for (record, note) in [(0, "40 and 264 bytes"), (1, "120 bytes")] {
            assert_eq!(records[record]["note"], note);
            assert_eq!(records[record]["record_bytes"], 120);
            assert_eq!(records[record]["settings"]["bytes"], json!(["mixed", 120]));
        }
    }
}
