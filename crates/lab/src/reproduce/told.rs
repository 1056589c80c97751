//! The report of all figures.

use super::outcome::Outcome;
use crate::{
    measure::machine::Machine,
    report::{html, page::Page, table::Table, terminal},
};

/// What there is in a figure's line beside its name.
const HEADS: [&str; 4] = ["figure", "the document's shape", "time", "in a sentence"];

pub(super) fn text(outcomes: &[Outcome]) -> String {
    let mut text = "\n".to_owned();
    for outcome in outcomes {
        text += &format!("{}: {}\n", outcome.text("figure"), outcome.text("title"));
        text += &(terminal::wrapped(outcome.text("sentence")) + "\n");
    }
    let mut table = Table::new([HEADS[0], HEADS[1], HEADS[2]]);
    for outcome in outcomes {
        let [figure, shape, seconds, _] = cells(outcome);
        table.row([figure, shape, seconds]);
    }
    text + &table.render()
}

/// The page; `left` figures are still to be made.
pub(super) fn page(outcomes: &[&Outcome], left: usize, machine: &Machine, command: &str) -> String {
    let mut page = Page::new(
        "The figures of the documents, repeated here",
        "foxton reproduce",
    );
    page.soft(&machine.sentence());
    if left > 0 {
        page.warning(
            "Not complete.",
            &format!(
                "{left} figures are still to be made: the same command goes on where it stopped."
            ),
        );
    }
    page.paragraph(
        "Each figure was made in a brief form: enough to see its shape, and not to keep its numbers. What a \
         document claims is held against the medians of this one run; each figure below has its claims in a \
         table, and `foxton figure ID` makes it alone and longer.",
    );
    let heads = HEADS.map(str::to_owned);
    let rows: Vec<Vec<String>> = outcomes
        .iter()
        .map(|outcome| cells(outcome).to_vec())
        .collect();
    page.contents(&heads, &rows);
    outcomes
        .iter()
        .for_each(|outcome| page.insert(outcome.section()));
    html::again(&mut page, machine, &[], command);
    page.end()
}

fn cells(outcome: &Outcome) -> [String; 4] {
    let seconds = outcome
        .record
        .get("seconds")
        .and_then(serde_json::Value::as_f64);
    [
        outcome.text("figure").to_owned(),
        outcome.text("shape").to_owned(),
        seconds.map_or("-".to_owned(), |seconds| format!("{seconds:.0} s")),
        outcome.text("sentence").to_owned(),
    ]
}
