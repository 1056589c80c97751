//! Reads that are wrong by themselves, whatever other transactions read.

use super::cycle::Class;
use crate::history::{End, History, Record, Step, Transaction, Version, Writer};
use crate::replay::{tell, told};

/// A read that no order of the transactions explains.
#[derive(Debug, Clone, Copy)]
pub struct Direct {
    /// Kind of anomaly: [`Class::Internal`], [`Class::G1a`], [`Class::G1b`], [`Class::GSia`] or
    /// [`Class::GSib`].
    pub class: Class,
    /// The reading transaction.
    pub reader: Writer,
    /// The step that read.
    pub step: u16,
    /// The key.
    pub key: u64,
    /// The version that was read.
    pub saw: Option<Version>,
}

impl Direct {
    pub(crate) fn tell(&self, history: &History) -> String {
        let Direct {
            reader,
            step,
            key,
            saw,
            ..
        } = *self;
        let transaction = |writer| {
            let found = history.find(writer);
            found.map_or_else(
                || "It is none of this history.".to_owned(),
                |(record, each)| tell(record, each),
            )
        };
        let mut text = format!(
            "{reader} read in step {step} that key {key} {}; ",
            told(saw)
        );
        text += match self.class {
            Class::Internal => "it had written another value itself",
            Class::G1b => "its writer overwrote it before it committed",
            Class::GSia => "that was written, or was overwritten by it, after its snapshot",
            Class::GSib => "at its snapshot another value was committed",
            _ => "no committed transaction left it so",
        };
        text += &format!(".\n{}", transaction(reader));
        if let Some(other) = saw.map(Version::writer).filter(|other| *other != reader) {
            text += &format!("\n{}", transaction(other));
        } else if saw.is_none()
            && self.class == Class::G1a
            && let Some((record, each)) = deleter(history, key)
        {
            text += &format!("\n{}", tell(record, each));
        }
        text
    }
}

/// Returns a transaction that deleted `key` and was rolled back, if there was one.
fn deleter(history: &History, key: u64) -> Option<(&Record, &Transaction)> {
    let all = history.records.iter().flat_map(|record| {
        let transactions = record.transactions().iter();
        transactions.map(move |each| (record, each))
    });
    all.filter(|(_, each)| each.end == End::RolledBack)
        .find(|(record, each)| {
            let steps = record.steps(each);
            steps.contains(&Step::Delete(key, true))
        })
}
