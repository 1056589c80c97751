//! A small picture of the curves for a terminal, drawn with braille dots.
//!
//! Each character cell holds 2 × 4 dots. A line is drawn dot by dot between its points; where the
//! lines of two curves share a cell, the later one shows.

use crate::measure::curve::Curve;

use super::number::short;

const ROWS: usize = 9;
const CELLS_PER_STEP: usize = 5;
const MARKS: [char; 6] = ['●', '○', '▲', '△', '■', '□'];

/// Throughput over the number of clients, every step of the MPL equally wide.
pub fn sketch(curves: &[Curve]) -> String {
    let mpls: Vec<u32> = {
        let mut all: Vec<u32> = curves
            .iter()
            .flat_map(|curve| curve.points.iter().map(|point| point.mpl))
            .collect();
        all.sort_unstable();
        all.dedup();
        all
    };
    let top = curves
        .iter()
        .filter_map(Curve::peak)
        .map(|point| point.tps().median());
    let top = top.fold(0.0, f64::max);
    if mpls.len() < 2 || top <= 0.0 {
        return String::new();
    }
    let width = (mpls.len() - 1) * CELLS_PER_STEP + 1;
    let mut canvas = Canvas::new(width, ROWS);
    for (index, curve) in curves.iter().enumerate() {
        let places: Vec<(usize, usize)> = curve
            .points
            .iter()
            .filter_map(|point| {
                let step = mpls.iter().position(|&mpl| mpl == point.mpl)?;
                let height = point.tps().median() / top * (ROWS * 4 - 1) as f64;
                Some((
                    step * CELLS_PER_STEP * 2,
                    ROWS * 4 - 1 - height.round() as usize,
                ))
            })
            .collect();
        canvas.path(&places, MARKS[index % MARKS.len()]);
    }
    label(&canvas, &mpls, top, curves)
}

fn label(canvas: &Canvas, mpls: &[u32], top: f64, curves: &[Curve]) -> String {
    let mut text = String::new();
    for row in 0..ROWS {
        let tick = match row {
            0 => short(top),
            _ if row == ROWS / 2 => short(top / 2.0),
            _ if row == ROWS - 1 => "0".to_owned(),
            _ => String::new(),
        };
        text += &format!("  {tick:>8} ┤{}\n", canvas.row(row).trim_end());
    }
    text += &format!("  {:>8} └{}\n", "tps", "─".repeat(canvas.width));
    let mut ticks = String::new();
    for mpl in mpls {
        ticks += &format!("{mpl:<CELLS_PER_STEP$}");
    }
    text += &format!("  {:>8}  {}  clients (MPL)\n", "", ticks.trim_end());
    let legend: Vec<String> = curves
        .iter()
        .enumerate()
        .map(|(index, curve)| format!("{} {}", MARKS[index % MARKS.len()], curve.label()))
        .collect();
    text += &format!("  {:>8}  {}\n", "", legend.join("    "));
    text
}

struct Canvas {
    width: usize,
    dots: Vec<u8>,
    marks: Vec<Option<char>>,
}

impl Canvas {
    fn new(width: usize, rows: usize) -> Canvas {
        Canvas {
            width,
            dots: vec![0; width * rows],
            marks: vec![None; width * rows],
        }
    }

    fn path(&mut self, places: &[(usize, usize)], mark: char) {
        for pair in places.windows(2) {
            let ((x0, y0), (x1, y1)) = (pair[0], pair[1]);
            let steps = (x1 - x0).max(y0.abs_diff(y1)).max(1);
            for step in 0..=steps {
                let share = step as f64 / steps as f64;
                let x = x0 as f64 + (x1 as f64 - x0 as f64) * share;
                let y = y0 as f64 + (y1 as f64 - y0 as f64) * share;
                self.dot(x.round() as usize, y.round() as usize);
            }
        }
        for &(x, y) in places {
            let cell = y / 4 * self.width + x / 2;
            self.marks[cell] = Some(mark);
        }
    }

    fn dot(&mut self, x: usize, y: usize) {
        // Unicode numbers the dots of a braille cell column by column, the bottom row last.
        const BITS: [[u8; 4]; 2] = [[0x01, 0x02, 0x04, 0x40], [0x08, 0x10, 0x20, 0x80]];
        self.dots[y / 4 * self.width + x / 2] |= BITS[x % 2][y % 4];
    }

    fn row(&self, row: usize) -> String {
        (0..self.width)
            .map(|column| {
                let cell = row * self.width + column;
                let braille = char::from_u32(0x2800 + u32::from(self.dots[cell]));
                let blank = self.dots[cell] == 0;
                self.marks[cell]
                    .or(if blank { Some(' ') } else { braille })
                    .unwrap_or(' ')
            })
            .collect()
    }
}
