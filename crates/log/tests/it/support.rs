//! Common code of the tests.
#![allow(dead_code, reason = "no test uses all of it")]

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use foxton_log::device::Device;
use foxton_log::read::reader::{self, LogSummary};
use foxton_log::{Log, LogOptions, Lsn, OpenError, OpenReport, Start};

pub(crate) const IDENTITY: [u8; 16] = *b"the log of tests";

/// A record that was inserted or found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) end: Lsn,
    pub(crate) kind: u8,
    pub(crate) payload: Vec<u8>,
}

pub(crate) type Refused = OpenError<Infallible>;

/// Returns options under which nothing happens by the clock.
pub(crate) fn options() -> LogOptions {
    let mut options = LogOptions::tiny();
    options.sync_interval = Duration::from_secs(3600);
    options
}

pub(crate) fn open(device: Arc<dyn Device>) -> Result<(Log, OpenReport, Vec<Entry>), Refused> {
    open_as(device, options(), IDENTITY)
}

pub(crate) fn open_as(
    device: Arc<dyn Device>,
    options: LogOptions,
    identity: [u8; 16],
) -> Result<(Log, OpenReport, Vec<Entry>), Refused> {
    let mut found = Vec::new();
    let (log, opened) = Log::open(device, options, identity, &mut |record| {
        found.push(Entry {
            end: record.end,
            kind: record.kind,
            payload: record.payload.to_vec(),
        });
        Ok(())
    })?;
    Ok((log, opened, found))
}

pub(crate) fn read(device: &dyn Device) -> Result<(LogSummary, Vec<Entry>), Refused> {
    let mut found = Vec::new();
    let summary = reader::read(device, &IDENTITY, Start::default(), &mut |record| {
        found.push(Entry {
            end: record.end,
            kind: record.kind,
            payload: record.payload.to_vec(),
        });
        Ok(())
    })?;
    Ok((summary, found))
}

/// SplitMix64: the same seed, the same test.
#[derive(Debug, Clone)]
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        (self.draw() % bound as u64) as usize
    }

    pub(crate) fn bytes(&mut self, length: usize) -> Vec<u8> {
        (0..length).map(|_| self.draw() as u8).collect()
    }
}
