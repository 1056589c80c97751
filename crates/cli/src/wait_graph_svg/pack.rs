//! Placement of the parts of a graph: lays out each connected part for itself, then places the
//! parts in rows like words of a text, the largest first.

use super::layers::{Layout, Plan, lay_out};

/// Positions, in points from the top left.
#[derive(Debug, Default)]
pub(super) struct Placed {
    /// For each node: the middle of the top of its box.
    pub(super) nodes: Vec<(f64, f64)>,
    /// For each edge: the points between its ends, starting at the waiter.
    pub(super) bends: Vec<Vec<(f64, f64)>>,
    /// For each edge: true if it leads down, as one edge of a cycle must.
    pub(super) down: Vec<bool>,
    pub(super) width: f64,
    pub(super) height: f64,
}

/// Sizes of a drawing.
#[derive(Debug, Clone, Copy)]
pub(super) struct Sizes {
    /// Height of a box.
    pub(super) node: f64,
    /// Distance between layers.
    pub(super) layer: f64,
    /// Gap between neighbours, and between parts.
    pub(super) gap: f64,
    /// Width of a row of parts, unless one part is wider.
    pub(super) row: f64,
}

/// A connected part: its nodes, its edges, and its layout.
struct Part {
    nodes: Vec<usize>,
    edges: Vec<usize>,
    layout: Layout,
}

/// Returns the positions of all parts.
pub(super) fn pack(widths: &[f64], edges: &[(usize, usize)], sizes: Sizes) -> Placed {
    let mut parts = parts(widths, edges, sizes.gap);
    parts.sort_by_key(|part| std::cmp::Reverse((part.layout.layer_count, part.nodes.len())));
    let mut placed = Placed {
        nodes: vec![(0.0, 0.0); widths.len()],
        bends: vec![Vec::new(); edges.len()],
        down: vec![false; edges.len()],
        ..Placed::default()
    };
    let (mut x, mut y, mut row_height) = (0.0, 0.0, 0.0f64);
    for part in &parts {
        if x > 0.0 && x + part.layout.width > sizes.row {
            (x, y) = (0.0, y + row_height + 2.0 * sizes.gap);
            row_height = 0.0;
        }
        let at = |&(inside, layer): &(f64, usize)| (x + inside, y + layer as f64 * sizes.layer);
        for (node, place) in part.nodes.iter().zip(&part.layout.nodes) {
            placed.nodes[*node] = at(place);
        }
        for (number, &edge) in part.edges.iter().enumerate() {
            placed.bends[edge] = part.layout.bends[number].iter().map(at).collect();
            placed.down[edge] = part.layout.down[number];
        }
        let layers = part.layout.layer_count.saturating_sub(1) as f64;
        row_height = row_height.max(layers * sizes.layer + sizes.node);
        placed.width = placed.width.max(x + part.layout.width);
        placed.height = placed.height.max(y + row_height);
        x += part.layout.width + 2.0 * sizes.gap;
    }
    placed
}

fn parts(widths: &[f64], edges: &[(usize, usize)], gap: f64) -> Vec<Part> {
    let part_of = joined(widths.len(), edges);
    let mut names = part_of.clone();
    names.sort_unstable();
    names.dedup();
    let mut parts: Vec<Part> = names
        .iter()
        .map(|_| Part {
            nodes: Vec::new(),
            edges: Vec::new(),
            layout: Layout::default(),
        })
        .collect();
    let number = |node: usize| names.binary_search(&part_of[node]).unwrap_or(0);
    let mut inside = vec![0; widths.len()];
    for (node, inside) in inside.iter_mut().enumerate() {
        let part = &mut parts[number(node)];
        *inside = part.nodes.len();
        part.nodes.push(node);
    }
    for (edge, &(from, _)) in edges.iter().enumerate() {
        parts[number(from)].edges.push(edge);
    }
    for part in &mut parts {
        let widths: Vec<f64> = part.nodes.iter().map(|&node| widths[node]).collect();
        let own = part.edges.iter().map(|&edge| edges[edge]);
        let own: Vec<(usize, usize)> = own.map(|(from, to)| (inside[from], inside[to])).collect();
        part.layout = lay_out(&Plan {
            widths: &widths,
            edges: &own,
            gap,
        });
    }
    parts
}

/// Returns for each node the smallest node of its part.
fn joined(count: usize, edges: &[(usize, usize)]) -> Vec<usize> {
    let mut neighbours = vec![Vec::new(); count];
    for &(from, to) in edges {
        neighbours[from].push(to);
        neighbours[to].push(from);
    }
    let mut part_of = vec![usize::MAX; count];
    for start in 0..count {
        let mut open = vec![start];
        while let Some(node) = open.pop() {
            if part_of[node] == usize::MAX {
                part_of[node] = start;
                open.extend(&neighbours[node]);
            }
        }
    }
    part_of
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_stand_side_by_side_in_rows_and_do_not_overlap() {
        let edges: Vec<(usize, usize)> = (0..30).map(|pair| (2 * pair, 2 * pair + 1)).collect();
        let sizes = Sizes {
            node: 40.0,
            layer: 80.0,
            gap: 20.0,
            row: 1_000.0,
        };
        let placed = pack(&[200.0; 60], &edges, sizes);
        assert!(
            placed.width <= 1_000.0 && placed.height > 500.0,
            "{placed:?}"
        );
        for (at, one) in placed.nodes.iter().enumerate() {
            for other in &placed.nodes[..at] {
                let apart = (one.0 - other.0).abs() >= 200.0 || (one.1 - other.1).abs() >= 40.0;
                assert!(apart, "{one:?} {other:?}");
            }
        }
        assert_eq!(pack(&[], &[], sizes).height, 0.0);
    }
}
