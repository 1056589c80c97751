//! Report of all figures.

use super::{clock, outcome::Outcome};
use crate::{
    measure::machine::Machine,
    report::{html, page::Page, shape::Verdict, table::Table, terminal},
};

/// Columns of a figure's line.
const HEADS: [&str; 4] = ["figure", "the document's shape", "time", "judgement"];

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
    let all: Vec<&Outcome> = outcomes.iter().collect();
    text + &table.render() + "\n" + &terminal::wrapped(&summary(&all)) + "\n"
}

/// Returns the page; `left` figures are still to be made.
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
                "{left} figures are still to be made. The same command resumes where it stopped."
            ),
        );
    }
    page.paragraph(
        "Each figure was made in a brief form: long enough to see its shape, too short to keep its \
         numbers. The document's claims are compared with the medians of this one run; the table of \
         each figure below has all of them. The command foxton figure makes one figure alone, and \
         longer.",
    );
    page.paragraph(&summary(outcomes));
    let heads = HEADS.map(str::to_owned);
    let row = |outcome: &&Outcome| {
        let class = match outcome.broke() {
            true => "no",
            false => Verdict::class_of(outcome.text("shape")),
        };
        (class, cells(outcome).to_vec())
    };
    let rows: Vec<(&str, Vec<String>)> = outcomes.iter().map(row).collect();
    page.contents(&heads, &rows);
    outcomes
        .iter()
        .for_each(|outcome| page.insert(outcome.section()));
    html::again(&mut page, machine, &[], command);
    page.end()
}

/// Counts the verdicts, in a sentence, and adds how long all of it took.
fn summary(outcomes: &[&Outcome]) -> String {
    let (mut words, mut seconds) = (Vec::<(&str, usize)>::new(), 0.0);
    for outcome in outcomes {
        let word = outcome.text("shape");
        match words.iter_mut().find(|(known, _)| *known == word) {
            Some((_, count)) => *count += 1,
            None => words.push((word, 1)),
        }
        seconds += outcome.number("seconds").unwrap_or(0.0);
    }
    words.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    let counts = words.iter().map(|(word, count)| format!("{count} {word}"));
    format!(
        "Of {} figures: {}. They took {} in all.",
        outcomes.len(),
        counts.collect::<Vec<_>>().join(", "),
        clock::words(seconds)
    )
}

fn cells(outcome: &Outcome) -> [String; 4] {
    let planned = outcome
        .number("seconds_planned")
        .map_or(String::new(), |planned| format!(" of {planned:.0}"));
    [
        outcome.text("figure").to_owned(),
        outcome.text("shape").to_owned(),
        outcome
            .number("seconds")
            .map_or("-".to_owned(), |seconds| format!("{seconds:.0}{planned} s")),
        outcome.text("sentence").to_owned(),
    ]
}
