//! Nodes and edges as SVG: boxes of two lines, arrows to who is in the way.

use std::fmt::{self, Write};

use super::pack::{Placed, Sizes, pack};
use super::{Node, WaitGraph};

const FONT: f64 = 12.0;
/// The width of a character, generously: text is not measured.
const CHARACTER: f64 = 6.9;
const BOX: f64 = 40.0;
const LAYER: f64 = 84.0;
const GAP: f64 = 24.0;
/// As wide as a screen.
const ROW: f64 = 1_600.0;
const MARGIN: f64 = 16.0;
const LEGEND: f64 = 28.0;
/// Characters of a line; the whole is in the tooltip.
const SHOWN: usize = 44;
/// How far from the middle of a box the two ends of a cycle meet it.
const ASIDE: f64 = 14.0;

const LEGEND_TEXT: &str = "an arrow leads to who is in the way: solid, it holds the name; dashed, \
                           it waits for it earlier; red, a cycle";

pub(super) fn draw(graph: &WaitGraph) -> String {
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
    writeln!(out, "<title>Who waits for whom</title>")?;
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
    let legend = if empty { "nobody waits" } else { LEGEND_TEXT };
    writeln!(
        out,
        "<text x=\"{MARGIN}\" y=\"{:.0}\" font-size=\"10\" fill=\"#777\">{legend}</text>\n</svg>",
        height - MARGIN + 4.0
    )
}

fn node_box(
    node: &Node,
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
    // Where two lead there and back, each has its side.
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
    // The mode stands where the edge begins: there edges into one box are still apart.
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
    use super::super::tests::{a_cycle, a_line};
    use super::*;

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
    fn what_is_drawn_is_well_formed_whatever_people_call_things() {
        for graph in [WaitGraph::default(), a_line(50), a_cycle(2), a_cycle(7)] {
            let svg = draw(&graph);
            assert_well_formed(&svg);
            assert_eq!(svg.matches("<g>").count(), graph.nodes.len());
            assert_eq!(svg.matches("<path d=\"M").count(), graph.edges.len() + 2);
        }
        assert!(draw(&a_cycle(2)).contains("&lt;job 0&gt;"));
    }

    #[test]
    fn a_cycle_is_red_and_a_line_is_not() {
        assert!(draw(&a_cycle(3)).contains("url(#red)"));
        assert!(!draw(&a_line(3)).contains("url(#red)"));
    }

    #[test]
    fn long_words_are_cut_and_whole_in_the_tooltip() {
        let mut graph = a_line(1);
        graph.nodes[0].label = "x".repeat(200);
        let svg = draw(&graph);
        assert!(svg.contains(&"x".repeat(200)));
        assert!(svg.contains(&format!("{}…<", "x".repeat(SHOWN))));
    }
}
