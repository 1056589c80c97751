//! Layered layout: places the nodes of a graph in layers, so that edges lead up.
//!
//! The algorithm has five well-known steps.
//!
//! 1. Edges that close a cycle are reversed for the layout.
//! 2. A node goes below the nodes it waits for, in the first layer with space.
//! 3. An edge that passes layers gets a point in each, so that it keeps clear of nodes.
//! 4. Each layer is ordered by the mean position of neighbours above and below, in several sweeps.
//! 5. Every point moves as near to the mean of its neighbours as order and gaps allow.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// A graph to lay out.
#[derive(Debug)]
pub(super) struct Plan<'a> {
    /// Width of each node.
    pub(super) widths: &'a [f64],
    /// Edges from a waiter to its blocker.
    pub(super) edges: &'a [(usize, usize)],
    /// Gap between two neighbours of a layer.
    pub(super) gap: f64,
}

/// Result of the layout. Layers count from the top.
#[derive(Debug, Default)]
pub(super) struct Layout {
    /// For each node: the middle of its box, and its layer.
    pub(super) nodes: Vec<(f64, usize)>,
    /// For each edge: the points between its ends, starting at the waiter.
    pub(super) bends: Vec<Vec<(f64, usize)>>,
    /// For each edge: true if it leads down, as one edge of a cycle must.
    pub(super) down: Vec<bool>,
    /// Number of layers.
    pub(super) layer_count: usize,
    /// Right edge of the rightmost box; the leftmost begins at 0.
    pub(super) width: f64,
}

/// Maximum number of nodes in one layer.
const ABREAST: usize = 6;
/// Number of sweeps that order the layers.
const SWEEPS: usize = 12;
/// Width of the point in which an edge passes a layer.
const BEND_WIDTH: f64 = 4.0;
/// Fraction of a gap that a passing edge needs.
const BEND_GAP: f64 = 0.4;

/// Points of the layers: nodes first, then bends.
struct Points {
    /// Number of nodes among them.
    count: usize,
    layers: Vec<Vec<usize>>,
    layer_of: Vec<usize>,
    widths: Vec<f64>,
    above: Vec<Vec<usize>>,
    below: Vec<Vec<usize>>,
    x: Vec<f64>,
}

/// Returns the layout of a graph.
pub(super) fn lay_out(plan: &Plan<'_>) -> Layout {
    let count = plan.widths.len();
    if count == 0 {
        return Layout::default();
    }
    let down = closing(count, plan.edges);
    let upward: Vec<(usize, usize)> = plan
        .edges
        .iter()
        .zip(&down)
        .map(|(&(from, to), &down)| if down { (to, from) } else { (from, to) })
        .collect();
    let layer_of = layers(count, &upward);
    let mut points = Points::new(plan.widths, layer_of);
    let chains: Vec<Vec<usize>> = upward.iter().map(|&edge| points.join(edge)).collect();
    points.order();
    points.place(plan.gap);
    let at = |point: usize| (points.x[point], points.layer_of[point]);
    let bends = chains.iter().zip(&down).map(|(chain, &down)| {
        let mut bends: Vec<_> = chain.iter().map(|&point| at(point)).collect();
        if down {
            bends.reverse();
        }
        bends
    });
    let right = |node: usize| points.x[node] + plan.widths[node] / 2.0;
    Layout {
        nodes: (0..count).map(at).collect(),
        bends: bends.collect(),
        layer_count: points.layers.len(),
        width: (0..points.x.len())
            .map(|point| points.x[point] + points.widths[point] / 2.0)
            .fold(right(0), f64::max),
        down,
    }
}

/// Returns for each edge whether it closes a cycle on a depth-first walk.
fn closing(count: usize, edges: &[(usize, usize)]) -> Vec<bool> {
    let mut out = vec![Vec::new(); count];
    for (number, &(from, _)) in edges.iter().enumerate() {
        out[from].push(number);
    }
    let mut closing = vec![false; edges.len()];
    // 0: not visited, 1: on the current path, 2: finished.
    let mut state = vec![0u8; count];
    for start in 0..count {
        let mut way = Vec::new();
        if state[start] == 0 {
            state[start] = 1;
            way.push((start, 0));
        }
        while let Some((node, next)) = way.last_mut() {
            let Some(&number) = out[*node].get(*next) else {
                state[*node] = 2;
                way.pop();
                continue;
            };
            *next += 1;
            let to = edges[number].1;
            match state[to] {
                0 => {
                    state[to] = 1;
                    way.push((to, 0));
                }
                1 => closing[number] = true,
                _ => {}
            }
        }
    }
    closing
}

/// Returns the layer of each node, from 0 at the top: the first one with space below all nodes it
/// leads to. The node with the longest path behind it chooses first.
fn layers(count: usize, upward: &[(usize, usize)]) -> Vec<usize> {
    let (mut above, mut below) = (vec![Vec::new(); count], vec![Vec::new(); count]);
    for &(from, to) in upward {
        above[from].push(to);
        below[to].push(from);
    }
    let order = from_the_top(&above, &below);
    let mut behind = vec![0; count];
    for &node in order.iter().rev() {
        let longest = below[node].iter().map(|&lower| behind[lower] + 1).max();
        behind[node] = longest.unwrap_or(0);
    }
    let mut missing: Vec<usize> = above.iter().map(Vec::len).collect();
    let (mut layer_of, mut sizes) = (vec![0; count], vec![0; count]);
    let ready = (0..count).filter(|&node| missing[node] == 0);
    let mut ready: BinaryHeap<_> = ready.map(|node| (behind[node], Reverse(node))).collect();
    while let Some((_, Reverse(node))) = ready.pop() {
        let lowest = above[node].iter().map(|&upper| layer_of[upper] + 1).max();
        let first = lowest.unwrap_or(0);
        let roomy = (first..count).find(|&layer| sizes[layer] < ABREAST);
        layer_of[node] = roomy.unwrap_or(first);
        sizes[layer_of[node]] += 1;
        for &lower in &below[node] {
            missing[lower] -= 1;
            if missing[lower] == 0 {
                ready.push((behind[lower], Reverse(lower)));
            }
        }
    }
    // A node may have gone below a layer that stayed empty.
    let mut used: Vec<usize> = layer_of.clone();
    used.sort_unstable();
    used.dedup();
    let rank = |layer: &usize| used.binary_search(layer).unwrap_or(0);
    layer_of.iter().map(rank).collect()
}

/// Returns the nodes, each after all that it leads to.
fn from_the_top(above: &[Vec<usize>], below: &[Vec<usize>]) -> Vec<usize> {
    let mut missing: Vec<usize> = above.iter().map(Vec::len).collect();
    let mut order: Vec<usize> = (0..above.len())
        .filter(|&node| missing[node] == 0)
        .collect();
    let mut next = 0;
    while next < order.len() {
        for &lower in &below[order[next]] {
            missing[lower] -= 1;
            if missing[lower] == 0 {
                order.push(lower);
            }
        }
        next += 1;
    }
    order
}

impl Points {
    fn new(widths: &[f64], layer_of: Vec<usize>) -> Points {
        let count = widths.len();
        let depth = layer_of.iter().max().map_or(0, |deepest| deepest + 1);
        let mut layers = vec![Vec::new(); depth];
        for (node, &layer) in layer_of.iter().enumerate() {
            layers[layer].push(node);
        }
        Points {
            count,
            layers,
            layer_of,
            widths: widths.to_vec(),
            above: vec![Vec::new(); count],
            below: vec![Vec::new(); count],
            x: Vec::new(),
        }
    }

    /// Joins two nodes through a bend in each layer between them. Returns the bends from below.
    fn join(&mut self, (from, to): (usize, usize)) -> Vec<usize> {
        let (low, high) = (self.layer_of[from], self.layer_of[to]);
        let mut bends = Vec::new();
        let mut last = from;
        for layer in (high + 1..low).rev() {
            let bend = self.layer_of.len();
            self.layer_of.push(layer);
            self.layers[layer].push(bend);
            self.widths.push(BEND_WIDTH);
            self.above.push(Vec::new());
            self.below.push(Vec::new());
            self.link(last, bend);
            bends.push(bend);
            last = bend;
        }
        self.link(last, to);
        bends
    }

    fn link(&mut self, lower: usize, upper: usize) {
        self.above[lower].push(upper);
        self.below[upper].push(lower);
    }

    /// Orders each layer by the mean position of the neighbours, alternating down and up.
    fn order(&mut self) {
        let mut place = vec![0.0; self.layer_of.len()];
        for layer in &self.layers {
            for (at, &point) in layer.iter().enumerate() {
                place[point] = at as f64;
            }
        }
        let depth = self.layers.len();
        for sweep in 0..SWEEPS {
            for step in 0..depth {
                let downward = sweep % 2 == 0;
                let layer = if downward { step } else { depth - 1 - step };
                let neighbours = if downward { &self.above } else { &self.below };
                let wish =
                    |point: &usize| mean(&neighbours[*point], &place).unwrap_or(place[*point]);
                let mut order: Vec<(f64, usize)> = self.layers[layer]
                    .iter()
                    .map(|point| (wish(point), *point))
                    .collect();
                order.sort_by(|a, b| a.0.total_cmp(&b.0));
                for (at, &(_, point)) in order.iter().enumerate() {
                    place[point] = at as f64;
                    self.layers[layer][at] = point;
                }
            }
        }
    }

    /// Assigns every point its x: near its neighbours, in order, with gaps.
    fn place(&mut self, gap: f64) {
        self.x = vec![0.0; self.layer_of.len()];
        for layer in 0..self.layers.len() {
            self.settle(layer, gap, |_, _| None);
        }
        let depth = self.layers.len();
        for sweep in 0..SWEEPS {
            for step in 0..depth {
                let layer = if sweep % 2 == 0 {
                    step
                } else {
                    depth - 1 - step
                };
                self.settle(layer, gap, |points, point| {
                    let all = [&points.above[point][..], &points.below[point][..]].concat();
                    mean(&all, &points.x)
                });
            }
        }
        let left = |point: usize| self.x[point] - self.widths[point] / 2.0;
        let least = (0..self.x.len()).map(left).fold(f64::INFINITY, f64::min);
        self.x.iter_mut().for_each(|x| *x -= least);
    }

    /// Moves the points of a layer to where they wish to be, as nearly as the gaps allow: a
    /// least-squares fit. Neighbours that would overlap join into blocks that move together.
    fn settle(&mut self, layer: usize, gap: f64, wish: impl Fn(&Points, usize) -> Option<f64>) {
        let mut offsets = Vec::with_capacity(self.layers[layer].len());
        let mut offset = 0.0;
        let mut before: Option<usize> = None;
        for &point in &self.layers[layer] {
            offset += before.map_or(0.0, |before| {
                let bend = before.max(point) >= self.count;
                let gap = if bend { BEND_GAP * gap } else { gap };
                self.widths[before] / 2.0 + gap + self.widths[point] / 2.0
            });
            offsets.push(offset);
            before = Some(point);
        }
        // For each block: its wish without offsets, and its number of points.
        let mut blocks: Vec<(f64, usize)> = Vec::new();
        for (at, &point) in self.layers[layer].iter().enumerate() {
            let wish = wish(self, point).unwrap_or(self.x[point]);
            let mut block = (wish - offsets[at], 1);
            while let Some(&(earlier, count)) = blocks.last()
                && earlier > block.0
            {
                blocks.pop();
                let together = count + block.1;
                let sum = earlier * count as f64 + block.0 * block.1 as f64;
                block = (sum / together as f64, together);
            }
            blocks.push(block);
        }
        let places = blocks
            .iter()
            .flat_map(|&(place, count)| std::iter::repeat_n(place, count));
        let places: Vec<f64> = places.zip(&offsets).map(|(place, o)| place + o).collect();
        for (&point, place) in self.layers[layer].iter().zip(places) {
            self.x[point] = place;
        }
    }
}

fn mean(points: &[usize], place: &[f64]) -> Option<f64> {
    let sum: f64 = points.iter().map(|&point| place[point]).sum();
    (!points.is_empty()).then(|| sum / points.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(count: usize, edges: &[(usize, usize)]) -> Layout {
        let widths = vec![100.0; count];
        let plan = Plan {
            widths: &widths,
            edges,
            gap: 20.0,
        };
        let layout = lay_out(&plan);
        for (at, &(x, layer)) in layout.nodes.iter().enumerate() {
            assert!(x >= 49.9 && x <= layout.width - 49.9, "{at} is inside");
            for &(other, other_layer) in &layout.nodes[..at] {
                let apart = layer != other_layer || (x - other).abs() >= 119.9;
                assert!(apart, "{at} overlaps another: {layout:?}");
            }
        }
        for (number, &(from, to)) in edges.iter().enumerate() {
            let (low, high) = (layout.nodes[from].1, layout.nodes[to].1);
            assert_eq!(low > high, !layout.down[number]);
            assert_eq!(layout.bends[number].len(), low.abs_diff(high) - 1);
        }
        layout
    }

    #[test]
    fn waiters_are_below_their_blockers() {
        let layout = check(4, &[(1, 0), (2, 0), (3, 1), (3, 0)]);
        let layers: Vec<usize> = layout.nodes.iter().map(|node| node.1).collect();
        assert_eq!(layers, [0, 1, 1, 2]);
    }

    #[test]
    fn a_cycle_has_one_edge_that_leads_down() {
        let layout = check(3, &[(0, 1), (1, 2), (2, 0)]);
        assert_eq!(layout.down.iter().filter(|&&down| down).count(), 1);
        check(2, &[(0, 1), (1, 0)]);
    }

    #[test]
    fn fifty_nodes_of_any_shape_do_not_overlap() {
        let mut state = 9u64;
        let mut random = move |below: usize| {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            (state >> 33) as usize % below
        };
        for _ in 0..50 {
            let mut edges: Vec<(usize, usize)> = (0..70)
                .map(|_| (random(50), random(50)))
                .filter(|(from, to)| from != to)
                .collect();
            edges.sort_unstable();
            edges.dedup();
            check(50, &edges);
        }
    }

    #[test]
    fn many_waiters_of_one_blocker_are_in_rows() {
        let edges: Vec<(usize, usize)> = (1..50).map(|at| (at, 0)).collect();
        let layout = check(50, &edges);
        assert_eq!(layout.layer_count, 1 + 49usize.div_ceil(ABREAST));
        assert!(layout.width < 1_700.0, "{}", layout.width);
    }

    #[test]
    fn a_line_goes_straight_up() {
        let edges: Vec<(usize, usize)> = (1..50).map(|at| (at, at - 1)).collect();
        let layout = check(50, &edges);
        assert_eq!(layout.layer_count, 50);
        assert!(layout.width < 101.0, "{}", layout.width);
    }
}
