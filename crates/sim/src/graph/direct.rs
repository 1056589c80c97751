//! Reads that are wrong whatever anybody else read.

use super::cycle::Class;
use crate::history::{End, History, Record, Step, Transaction, Version, Writer};
use crate::replay::{tell, told};

/// A read that no order of the transactions explains.
#[derive(Debug, Clone, Copy)]
pub struct Direct {
    /// What is wrong: [`Class::Internal`], [`Class::G1a`] or [`Class::G1b`].
    pub class: Class,
    /// Who read.
    pub reader: Writer,
    /// In which step.
    pub step: u16,
    /// Which key.
    pub key: u64,
    /// What was seen.
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
        let mut text = format!("{reader} saw in step {step} that key {key} {}; ", told(saw));
        text += match self.class {
            Class::Internal => "it had itself written something else",
            Class::G1b => "whoever wrote that wrote something else before it committed",
            _ => "nobody who committed left it so",
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

/// One who took `key` away and was rolled back, if there was any.
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
