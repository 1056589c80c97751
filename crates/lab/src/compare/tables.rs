//! A comparison for people: on a terminal, and as a page.

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

/// The comparison as a page that loads nothing from outside.
pub fn page(comparison: &Comparison) -> String {
    let mut page = Page::new("Two runs compared", "foxton report");
    let [first, second] = &comparison.places;
    page.soft(&format!("A is {first}, B is {second}."));
    page.list(&sentences(comparison));
    page.blocks(&blocks(comparison));
    page.heading("Method");
    page.paragraph(&method());
    page.end()
}

const LETTERS: [char; 2] = ['A', 'B'];

/// The results, and cautions.
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
            "{few} points have fewer than {ENOUGH} measurements in one of the runs, too few to tell; repeat \
             with --reps {ENOUGH} or more."
        ));
    }
    for pair in &comparison.pairs {
        if let Some(what) = &pair.failed {
            let Pair { key, .. } = pair;
            all.push(format!(
                "{} at MPL {} is void, because a check failed: {what}",
                key.system, key.mpl
            ));
        }
    }
    for (letter, alone) in LETTERS.iter().zip(comparison.alone) {
        if alone > 0 {
            all.push(format!("Points only in {letter}: {alone}."));
        }
    }
    for (name, [first, second]) in &comparison.differences {
        all.push(format!("Different {name}: {first} in A, {second} in B."));
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
        let last = blocks.last_mut().expect("a block was added");
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
        "The interval is a bootstrap of the repeated passes. As many passes as each run has are drawn from it \
         with replacement, and their medians divided, {RESAMPLES} times with a fixed seed; the interval has \
         95 % of the ratios. B is faster or slower if the interval does not include 1 and both runs have \
         {ENOUGH} passes or more. The interval shows how passes differ within the runs, not how a machine \
         differs from one hour to the next. Compare systems within one run where that is possible."
    )
}
