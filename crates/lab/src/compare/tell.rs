//! A comparison for people: aligned on a terminal, and as a page.

use super::{Comparison, Pair};
use crate::{
    measure::ratio::{ENOUGH, RESAMPLES, Verdict},
    report::{findings::Block, number::grouped, page::Page, table::Table, terminal},
};

/// The comparison as text.
pub fn text(comparison: &Comparison) -> String {
    let mut text = "\n".to_owned();
    for (letter, place) in LETTERS.iter().zip(&comparison.places) {
        text += &format!("{letter}  {place}\n");
    }
    text += "\n";
    for block in blocks(comparison) {
        text += &terminal::block(&block);
    }
    for sentence in sentences(comparison) {
        text += &terminal::wrapped(&sentence);
    }
    text
}

/// The comparison as a page that reaches for nothing outside itself.
pub fn page(comparison: &Comparison) -> String {
    let mut page = Page::new("Two runs compared", "foxton report");
    let [first, second] = &comparison.places;
    page.soft(&format!("A is {first}, B is {second}."));
    page.list(&sentences(comparison));
    page.blocks(&blocks(comparison));
    page.heading("How it is compared");
    page.paragraph(&method());
    page.end()
}

const LETTERS: [char; 2] = ['A', 'B'];

/// What it comes to, and what to bear in mind.
fn sentences(comparison: &Comparison) -> Vec<String> {
    let count = |verdict| comparison.count(verdict);
    let mut all = vec![format!(
        "Of {} points in both, B is faster at {}, slower at {}, and no difference is shown at {}.",
        comparison.pairs.len(),
        count(Verdict::Faster),
        count(Verdict::Slower),
        count(Verdict::NoDifference)
    )];
    let few = count(Verdict::TooFew);
    if few > 0 {
        all.push(format!(
            "{few} were measured fewer than {ENOUGH} times in one of the runs, which is too few to tell: \
             repeat with --reps {ENOUGH} or more."
        ));
    }
    for pair in &comparison.pairs {
        if let Some(what) = &pair.failed {
            let Pair { key, .. } = pair;
            all.push(format!(
                "{} at MPL {} is void, since a check failed: {what}",
                key.system, key.mpl
            ));
        }
    }
    for (letter, alone) in LETTERS.iter().zip(comparison.alone) {
        if alone > 0 {
            all.push(format!("Points that {letter} has alone: {alone}."));
        }
    }
    for (name, [first, second]) in &comparison.differences {
        all.push(format!("Not the same {name}: {first} in A, {second} in B."));
    }
    all
}

/// A table for each experiment.
fn blocks(comparison: &Comparison) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    for pair in &comparison.pairs {
        let title = &pair.key.experiment;
        if blocks.last().is_none_or(|block| block.title != *title) {
            blocks.push(Block {
                title: title.clone(),
                note: String::new(),
                table: Table::new(HEADS),
            });
        }
        let last = blocks.last_mut().expect("one was put there");
        last.table.row(cells(pair));
    }
    if let Some(last) = blocks.last_mut() {
        last.note = "Transactions per second, medians. B ÷ A with its 95 % interval.".to_owned();
    }
    blocks
}

const HEADS: [&str; 8] = ["locks", "MPL", "A", "B", "B ÷ A", "from", "to", "verdict"];

fn cells(pair: &Pair) -> [String; 8] {
    let ratio = |part: fn(&crate::measure::ratio::Ratio) -> f64| {
        pair.ratio
            .as_ref()
            .map_or("-".to_owned(), |ratio| format!("{:.3}", part(ratio)))
    };
    let [first, second] = &pair.passes;
    [
        pair.key.system.clone(),
        pair.key.mpl.to_string(),
        grouped(first.median()),
        grouped(second.median()),
        ratio(|ratio| ratio.ratio),
        ratio(|ratio| ratio.low),
        ratio(|ratio| ratio.high),
        pair.words().to_owned(),
    ]
}

fn method() -> String {
    format!(
        "The interval is a bootstrap of the repeated passes: from those of each run as many are drawn with \
         replacement, their medians divided, {RESAMPLES} times, with a fixed seed; 95 % of the ratios lie in \
         the interval. B is faster or slower where the interval leaves out 1 and both runs have {ENOUGH} \
         passes or more. It tells how passes differ within the runs, and nothing of how a machine differs \
         from one hour to the next: things that one run can measure by turns are better compared there."
    )
}
