//! Frame of `foxton top`: a head of four lines, a page, and a line of keys. Nothing here keeps
//! state.

use std::collections::HashSet;

use foxton::status::{QueueStatus, RequestStatus, Status};
use foxton_lab::report::{
    number::{bytes, grouped},
    table,
};
use ratatui::{
    Frame,
    layout::{Constraint, Layout, Rect},
    style::{Color, Style, Stylize},
    text::{Line, Span},
    widgets::{Block, Paragraph, Row, Sparkline, Table},
};

use super::state::{Rates, State};
use crate::tables::{self, plain, time};

const KEYS: &str = " q quit  space pause  s sort  1-5 or tab pages  up/down scroll  +/- speed";

/// Draws `state`.
pub(super) fn draw(frame: &mut Frame<'_>, state: &State) {
    let [head, page, keys] = Layout::vertical([
        Constraint::Length(5),
        Constraint::Min(0),
        Constraint::Length(1),
    ])
    .areas(frame.area());
    let Some(status) = &state.status else {
        let words = state.trouble.as_deref().unwrap_or("connecting ...");
        frame.render_widget(Paragraph::new(plain(words)), page);
        return;
    };
    draw_head(frame, head, state, status);
    match state.page {
        2 => waits(frame, page, state),
        3 => {
            let title = "holders";
            let all = tables::holders(status, usize::MAX);
            grid(frame, page, title, &all, &[26, 6, 28, 9, 7], state.scroll);
        }
        4 => usage(frame, page, state, status),
        5 => deadlocks(frame, page, state, status),
        _ => overview(frame, page, state, status),
    }
    frame.render_widget(Paragraph::new(KEYS).dim(), keys);
}

fn draw_head(frame: &mut Frame<'_>, area: Rect, state: &State, status: &Status) {
    let [left, right] =
        Layout::horizontal([Constraint::Min(66), Constraint::Percentage(20)]).areas(area);
    let news = match (&state.trouble, state.is_paused()) {
        (Some(trouble), _) => Span::styled(plain(trouble), Style::new().fg(Color::Red).bold()),
        (None, true) => Span::styled("paused", Style::new().fg(Color::Yellow).bold()),
        (None, false) => Span::raw(format!("every {}", time(state.every()))),
    };
    let waiters = status.waiters();
    let longest = waiters.first().map(|(_, waiter)| waiter.waited);
    let Rates {
        commits,
        rollbacks,
        deadlocks,
        reruns,
        locks,
        waits,
        timeouts,
        waiting,
        ..
    } = state.rates;
    let cell = |what: &str, value: f64| format!("{what} {:>9} ", grouped(value));
    let facts = &status.locks;
    let lines = vec![
        Line::from(vec![
            Span::styled(" foxton top  ", Style::new().bold()),
            Span::raw(format!(
                "process {}  {}  open {}  ",
                status.process,
                status.lock_manager,
                time(status.open)
            )),
        ]),
        Line::from(vec![
            Span::raw(format!(" {}  ", plain(&status.database))).dim(),
            news,
        ]),
        Line::from(vec![
            Span::styled(cell(" commits/s", commits), Style::new().bold()),
            Span::raw(cell("rollbacks/s", rollbacks)),
            alarm(cell("deadlocks/s", deadlocks), deadlocks > 0.0),
        ]),
        Line::from(vec![
            Span::raw(cell("   locks/s", locks)),
            Span::raw(cell("    waits/s", waits)),
            Span::raw(cell("   reruns/s", reruns)),
            alarm(format!(" timeouts/s {timeouts:.0}"), timeouts > 0.0),
        ]),
        Line::from(format!(
            "   waiting {:>9}  mean {waiting:.1}  longest {}  99% in {}  {}",
            clients(&waiters),
            time(longest.unwrap_or_default()),
            time(facts.most_within),
            bytes(facts.memory_bytes)
        )),
    ];
    frame.render_widget(Paragraph::new(lines), left);
    let block = Block::new().title(Line::from("commits/s").dim());
    let room = usize::from(right.width);
    let skipped = state.history.len().saturating_sub(room);
    let recent: Vec<u64> = state.history.iter().skip(skipped).copied().collect();
    frame.render_widget(Sparkline::default().data(&recent).block(block), right);
}

/// Number of waiting clients. A client whose transaction ended while the snapshot was taken may be
/// in two queues, as two transactions with the same owner number.
fn clients(waiters: &[(&QueueStatus, &RequestStatus)]) -> usize {
    let place = |owner: &'_ str| owner.split('.').next().unwrap_or_default().to_owned();
    let places: HashSet<String> = waiters
        .iter()
        .map(|(_, entry)| place(&entry.owner))
        .collect();
    places.len()
}

fn alarm(text: String, raised: bool) -> Span<'static> {
    match raised {
        true => Span::styled(text, Style::new().fg(Color::Red).bold()),
        false => Span::raw(text),
    }
}

fn overview(frame: &mut Frame<'_>, area: Rect, state: &State, status: &Status) {
    let mut lines = vec![last_deadlock(status), checkpoints(status)];
    if let Some(status) = &status.pages {
        let pages = tables::pages(status, state.rates.pages);
        let words = [pages, tables::page_waits(status)];
        lines.extend(words.map(|words| Line::from(format!(" {words}")).dim()));
    }
    if let Some(words) = tables::resident(&status.resident) {
        let words = alarm(format!(" {words}"), status.resident.is_nearly_full);
        lines.push(Line::from(words));
    }
    let is_full = status.versions.bytes > status.versions.limit / 2;
    for words in tables::versions(&status.versions) {
        lines.push(Line::from(alarm(format!(" {words}"), is_full)));
    }
    let [top, bottom, last] = Layout::vertical([
        Constraint::Min(4),
        Constraint::Max(8),
        Constraint::Length(lines.len() as u16),
    ])
    .areas(area);
    waits(frame, top, state);
    let [names, labels] = Layout::horizontal([Constraint::Fill(1); 2])
        .spacing(2)
        .areas(bottom);
    let mut hot = table::Table::new(["hot name", "waits", "waited"]);
    for name in &status.hot_names {
        let waits = grouped(name.waits as f64);
        hot.row([plain(&name.name), waits, time(name.waited)]);
    }
    grid(frame, names, "hot names", &hot, &[18, 7, 7], 0);
    let mut by_label = table::Table::new(["label", "waits", "mean", "hold"]);
    for usage in &status.labels {
        by_label.row([
            tables::named(&usage.name),
            grouped(usage.waits as f64),
            time(usage.mean_wait()),
            time(usage.mean_hold()),
        ]);
    }
    grid(frame, labels, "labels", &by_label, &[16, 9, 7, 7], 0);
    frame.render_widget(Paragraph::new(lines), last);
}

fn last_deadlock(status: &Status) -> Line<'static> {
    let Some(latest) = status.deadlocks.last() else {
        return Line::from(" no deadlock").dim();
    };
    let members: Vec<String> = latest
        .cycle
        .iter()
        .map(|member| {
            format!(
                "{} for {}",
                tables::named(&member.label),
                plain(&member.name)
            )
        })
        .collect();
    let count = match status.locks.deadlocks {
        0 | 1 => "1 deadlock".to_owned(),
        many => format!("{} deadlocks", grouped(many as f64)),
    };
    Line::from(vec![
        Span::styled(format!(" {count}"), Style::new().fg(Color::Red)),
        Span::raw(format!("; the latest: {}", members.join(", "))),
    ])
}

fn checkpoints(status: &Status) -> Line<'static> {
    let state = &status.checkpoints;
    let line = Line::from(format!(" {}", tables::checkpoint(state)));
    match state.waiting > 0 || !state.last_failure.is_empty() {
        true => line.style(Style::new().fg(Color::Red)),
        false => line.dim(),
    }
}

fn waits(frame: &mut Frame<'_>, area: Rect, state: &State) {
    let waiters = state.waiters();
    let title = format!("{} waits, {}", waiters.len(), state.order.words());
    let mut all = table::Table::new(["waited", "transaction", "mode", "on", "behind"]);
    for (queue, waiter) in waiters {
        all.row([
            time(waiter.waited),
            tables::who(&waiter.owner, &waiter.label),
            waiter.mode.clone(),
            plain(&queue.name),
            tables::behind(&waiter.behind),
        ]);
    }
    grid(frame, area, &title, &all, &[8, 22, 5, 20, 18], state.scroll);
}

fn usage(frame: &mut Frame<'_>, area: Rect, state: &State, status: &Status) {
    let [tables, labels] = Layout::vertical([Constraint::Fill(1), Constraint::Fill(2)]).areas(area);
    let by_table = narrow(&tables::usages("table", &status.tables));
    let title = "waits by table";
    grid(frame, tables, title, &by_table, &USAGE, 0);
    let title = "by label; hold times are of locks that were waited for";
    let by_label = narrow(&tables::usages("label", &status.labels));
    grid(frame, labels, title, &by_label, &USAGE, state.scroll);
}

/// Columns of the page on usage, for 80 columns.
const USAGE: [u16; 7] = [16, 11, 7, 7, 9, 12, 9];

/// A table of usage without its sums, for which 80 columns are too narrow.
fn narrow(all: &table::Table) -> table::Table {
    let mut few = table::Table::new([
        "",
        "waits",
        "mean",
        "longest",
        "mean hold",
        "longest hold",
        "deadlocks",
    ]);
    for row in all.rows() {
        few.row([0, 1, 3, 4, 5, 6, 7].map(|at| row[at].clone()));
    }
    few
}

fn deadlocks(frame: &mut Frame<'_>, area: Rect, state: &State, status: &Status) {
    let mut all = table::Table::new(["member", "requests", "on", "behind", ""]);
    for deadlock in status.deadlocks.iter().rev() {
        let cycle = tables::cycle(deadlock);
        for row in cycle.rows() {
            let cells = [0, 1, 2, 5, 6].map(|at| row[at].clone());
            all.row(cells);
        }
        all.gap();
    }
    let title = match status.deadlocks.len() {
        0 => "no deadlock yet".to_owned(),
        count => format!("the last {count} deadlocks, the latest first"),
    };
    grid(frame, area, &title, &all, &[24, 7, 20, 22, 9], state.scroll);
}

/// A table with a title, from row `scroll` on. Space that is left over goes to the widest columns,
/// in equal parts.
fn grid(
    frame: &mut Frame<'_>,
    area: Rect,
    title: &str,
    all: &table::Table,
    widths: &[u16],
    scroll: usize,
) {
    let room = usize::from(area.height.saturating_sub(2));
    let most = all.rows().len().saturating_sub(room);
    let rows = all.rows().iter().skip(scroll.min(most)).take(room);
    let rows = rows.map(|row| Row::new(row.clone()));
    let heads = Row::new(all.heads().to_vec()).style(Style::new().dim());
    // The widest columns get the space that is left over; numbers need no more than their width.
    let widest = widths.iter().filter(|&&width| width >= 16).count();
    let spread = |&width: &u16| match width {
        16.. if widest > 0 => Constraint::Fill(width),
        _ => Constraint::Length(width),
    };
    let more = match all.rows().len() > room {
        true => format!(" ({} of {}) ", room, all.rows().len()),
        false => String::new(),
    };
    let block = Block::new()
        .borders(ratatui::widgets::Borders::TOP)
        .title(Line::from(format!(" {title} ")).bold())
        .title(Line::from(more).right_aligned());
    let table = Table::new(rows, widths.iter().map(spread))
        .header(heads)
        .column_spacing(1)
        .block(block);
    frame.render_widget(table, area);
}
