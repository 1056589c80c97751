//! Drawing of a wait-for graph as SVG, for a browser: boxes of two lines, and arrows to blockers.

use std::fmt::{self, Write};

use foxton::wait_graph::{TransactionNode, WaitGraph};

use pack::{Placed, Sizes, pack};

/// Layered layout of one part of a graph.
mod layers;

/// Placement of the parts of a graph.
mod pack;

const FONT: f64 = 12.0;
/// Width of a character, generous because text is not measured.
const CHARACTER: f64 = 6.9;
const BOX: f64 = 40.0;
const LAYER: f64 = 84.0;
const GAP: f64 = 24.0;
/// Width of a screen.
const ROW: f64 = 1_600.0;
const MARGIN: f64 = 16.0;
const LEGEND: f64 = 28.0;
/// Maximum characters of a line; the tooltip contains the whole text.
const SHOWN: usize = 44;
/// Distance from the middle of a box at which the two ends of a cycle meet it.
const ASIDE: f64 = 14.0;

const LEGEND_TEXT: &str = "an arrow leads to the blocking transaction: solid, it holds the name; \
                           dashed, it waits ahead; red, a cycle";

/// Returns the graph as an SVG document that needs no other file.
pub(crate) fn draw(graph: &WaitGraph) -> String {
    let mut text = String::new();
    write(graph, &mut text).expect("a string takes everything");
    text
}

fn write(graph: &WaitGraph, out: &mut String) -> fmt::Result {
    let boxes: Vec<[String; 2]> = graph
        .nodes
        .iter()
        .map(|node| node.lines().map(cut))
        .collect();
    let widths: Vec<f64> = boxes.iter().map(width_of).collect();
    let edges: Vec<(usize, usize)> = graph
        .edges
        .iter()
        .map(|edge| (edge.waiter, edge.blocker))
        .collect();
    let placed = pack(
        &widths,
        &edges,
        Sizes {
            node: BOX,
            layer: LAYER,
            gap: GAP,
            row: ROW,
        },
    );
    let legend_width = LEGEND_TEXT.chars().count() as f64 * 5.6;
    let width = placed.width.max(legend_width) + 2.0 * MARGIN;
    let height = placed.height.max(BOX) + 2.0 * MARGIN + LEGEND;
    writeln!(
        out,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
         viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"sans-serif\" font-size=\"{FONT}\">"
    )?;
    writeln!(out, "<title>Wait-for graph</title>")?;
    for (id, color) in [("arrow", "#555"), ("red", "#c00")] {
        writeln!(
            out,
            "<defs><marker id=\"{id}\" viewBox=\"0 0 10 10\" refX=\"9\" refY=\"5\" \
             markerWidth=\"8\" markerHeight=\"8\" orient=\"auto\"><path d=\"M0 1 L10 5 L0 9 z\" \
             fill=\"{color}\"/></marker></defs>"
        )?;
    }
    writeln!(
        out,
        "<rect width=\"{width:.0}\" height=\"{height:.0}\" fill=\"#fff\"/>"
    )?;
    for number in 0..edges.len() {
        edge(graph, &placed, number, out)?;
    }
    for (at, node) in graph.nodes.iter().enumerate() {
        node_box(node, &boxes[at], widths[at], placed.nodes[at], out)?;
    }
    let empty = graph.nodes.is_empty();
    let legend = if empty {
        "no transaction waits"
    } else {
        LEGEND_TEXT
    };
    writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"10\" fill=\"#777\">{legend}</text>\n</svg>",
        height - MARGIN + 4.0
    )
}

fn node_box(
    node: &TransactionNode,
    lines: &[String; 2],
    width: f64,
    (x, y): (f64, f64),
    out: &mut String,
) -> fmt::Result {
    let (fill, stroke) = match (node.victim, node.in_cycle, &node.awaits) {
        (true, _, _) => ("#fdd", "#c00"),
        (false, true, _) => ("#fff", "#c00"),
        (false, false, Some(_)) => ("#fff8e0", "#a80"),
        (false, false, None) => ("#e8f4e8", "#383"),
    };
    let (x, y) = (x + MARGIN, y + MARGIN);
    let whole = node.lines().join(", ");
    writeln!(out, "<g><title>{}</title>", escaped(&whole))?;
    writeln!(
        out,
        "<rect x=\"{:.1}\" y=\"{y:.1}\" width=\"{width:.1}\" height=\"{BOX}\" rx=\"5\" \
         fill=\"{fill}\" stroke=\"{stroke}\"/>",
        x - width / 2.0
    )?;
    for (line, (down, color)) in lines.iter().zip([(16.0, "#000"), (32.0, "#555")]) {
        writeln!(
            out,
            "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\" fill=\"{color}\">{}</text>",
            y + down,
            escaped(line)
        )?;
    }
    writeln!(out, "</g>")
}

fn edge(graph: &WaitGraph, placed: &Placed, number: usize, out: &mut String) -> fmt::Result {
    let edge = &graph.edges[number];
    let down = placed.down[number];
    // Two edges that lead there and back each have their side.
    let aside = match (edge.in_cycle, down) {
        (false, _) => 0.0,
        (true, false) => -ASIDE,
        (true, true) => ASIDE,
    };
    let ends = [edge.waiter, edge.blocker].map(|node| placed.nodes[node]);
    let side = |(x, y): (f64, f64), lower_side: bool| {
        let edge = if lower_side { BOX } else { 0.0 };
        (x + MARGIN + aside, y + MARGIN + edge)
    };
    let mut points = vec![side(ends[0], down)];
    // Straight through the layer that it passes, clear of the boxes beside it.
    for &(x, y) in &placed.bends[number] {
        let ends = [y + BOX, y].map(|y| (x + MARGIN, y + MARGIN));
        let [first, last] = if down { [ends[1], ends[0]] } else { ends };
        points.extend([first, last]);
    }
    points.push(side(ends[1], !down));
    let (color, marker) = match edge.in_cycle {
        true => ("#c00", "red"),
        false => ("#555", "arrow"),
    };
    let dashes = if edge.holds {
        ""
    } else {
        " stroke-dasharray=\"5 4\""
    };
    let mut path = format!("M{:.1} {:.1}", points[0].0, points[0].1);
    for pair in points.windows(2) {
        let ((x, y), (to_x, to_y)) = (pair[0], pair[1]);
        let middle = (y + to_y) / 2.0;
        write!(
            path,
            " C{x:.1} {middle:.1} {to_x:.1} {middle:.1} {to_x:.1} {to_y:.1}"
        )?;
    }
    writeln!(
        out,
        "<path d=\"{path}\" fill=\"none\" stroke=\"{color}\"{dashes} marker-end=\"url(#{marker})\"/>"
    )?;
    // The mode is written where the edge begins, because there edges into one box are still apart.
    let ((x, y), (to_x, to_y)) = (points[0], points[1]);
    let anchor = if aside < 0.0 { "end" } else { "start" };
    let beside = if aside < 0.0 { -4.0 } else { 4.0 };
    writeln!(
        out,
        "<text x=\"{:.1}\" y=\"{:.1}\" font-size=\"10\" text-anchor=\"{anchor}\" \
         fill=\"{color}\">{}</text>",
        x + (to_x - x) * 0.3 + beside,
        y + (to_y - y) * 0.4 + 3.0,
        escaped(&edge.mode)
    )
}

fn width_of(lines: &[String; 2]) -> f64 {
    let longest = lines.iter().map(|line| line.chars().count()).max();
    longest.unwrap_or(0) as f64 * CHARACTER + 16.0
}

fn cut(line: String) -> String {
    match line.char_indices().nth(SHOWN) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

fn escaped(text: &str) -> String {
    let plain = text.chars().map(|c| if c.is_control() { ' ' } else { c });
    let plain: String = plain.collect();
    plain
        .replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

#[cfg(test)]
mod tests {
    use foxton::status::{CycleMember, Deadlock};
    use foxton::wait_graph::WaitEdge;

    use super::*;

    fn node(owner: usize) -> TransactionNode {
        let mut node = TransactionNode::default();
        (node.owner, node.label) = (owner.to_string(), format!("job {owner}"));
        node
    }

    /// `count` transactions wait for one name, each behind the one before.
    fn a_line(count: usize) -> WaitGraph {
        let mut graph = WaitGraph::default();
        graph.nodes = (0..=count).map(node).collect();
        graph.edges = (1..=count).map(|waiter| edge(waiter, waiter - 1)).collect();
        graph
    }

    fn edge(waiter: usize, blocker: usize) -> WaitEdge {
        let mut edge = WaitEdge::default();
        (edge.waiter, edge.blocker, edge.mode) = (waiter, blocker, "X".into());
        edge
    }

    /// Each of `count` waits for the next, and the second is the victim.
    fn a_cycle(count: usize) -> WaitGraph {
        let mut deadlock = Deadlock::default();
        for at in 0..count {
            let mut member = CycleMember::default();
            (member.owner, member.label) = (at.to_string(), format!("<job {at}>"));
            (member.name, member.mode) = (format!("t/\"{at}\""), "X".into());
            (member.behind_mode, member.behind_holder) = ("S".into(), true);
            member.victim = at == 1;
            deadlock.cycle.push(member);
        }
        WaitGraph::of_deadlock(&deadlock)
    }

    /// Random edges, in cycles or not, between transactions with any labels.
    fn any_graph(state: &mut u64) -> WaitGraph {
        let mut random = |below: usize| {
            *state = state
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (*state >> 33) as usize % below
        };
        let mut graph = a_line(1 + random(30));
        let count = graph.nodes.len();
        for node in &mut graph.nodes {
            let label = (0..random(60)).map(|_| char::from_u32(random(300) as u32));
            node.label = label.flatten().collect();
        }
        for _ in 0..random(40) {
            let mut edge = edge(random(count), random(count));
            (edge.holds, edge.in_cycle) = (random(2) == 0, random(2) == 0);
            graph.edges.push(edge);
        }
        graph
    }

    /// Every opened element is closed, in order, and no text has a bare bracket.
    fn assert_well_formed(svg: &str) {
        let mut open: Vec<&str> = Vec::new();
        for tag in svg.split('<').skip(1) {
            let (inside, _) = tag.split_once('>').expect("a tag ends");
            let name = inside.split([' ', '/']).find(|word| !word.is_empty());
            let name = name.expect("a tag has a name");
            match (inside.starts_with('/'), inside.ends_with('/')) {
                (true, _) => assert_eq!(open.pop(), Some(name)),
                (false, false) => open.push(name),
                (false, true) => {}
            }
        }
        assert!(open.is_empty(), "{open:?}");
    }

    #[test]
    fn a_drawing_is_well_formed_whatever_the_labels() {
        for graph in [WaitGraph::default(), a_line(50), a_cycle(2), a_cycle(7)] {
            let svg = draw(&graph);
            assert_well_formed(&svg);
            assert_eq!(svg.matches("<g>").count(), graph.nodes.len());
            assert_eq!(svg.matches("<path d=\"M").count(), graph.edges.len() + 2);
        }
        assert!(draw(&a_cycle(2)).contains("&lt;job 0&gt;"));
    }

    #[test]
    fn any_graph_can_be_drawn() {
        let mut state = 7;
        for _ in 0..200 {
            assert_well_formed(&draw(&any_graph(&mut state)));
        }
    }

    #[test]
    fn a_cycle_is_red_and_a_line_is_not() {
        assert!(draw(&a_cycle(3)).contains("url(#red)"));
        assert!(!draw(&a_line(3)).contains("url(#red)"));
    }

    #[test]
    fn long_labels_are_cut_and_complete_in_the_tooltip() {
        let mut graph = a_line(1);
        graph.nodes[0].label = "x".repeat(200);
        let svg = draw(&graph);
        assert!(svg.contains(&"x".repeat(200)));
        assert!(svg.contains(&format!("{}…<", "x".repeat(SHOWN))));
    }
}
