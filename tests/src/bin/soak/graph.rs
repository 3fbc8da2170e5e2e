//! The drawing: a panel for each figure, all stretches one after another.

use crate::rows::{FIGURES, Figure, Row, Unit, stretches};
use crate::trend::heading;

/// Panels beside each other.
const COLUMNS: usize = 4;
/// Width and height of the place of a panel, and of the plot in it, which has room for numbers at its left and above.
const PANEL: (f64, f64) = (250.0, 150.0);
const PLOT: (f64, f64) = (190.0, 90.0);
const CORNER: (f64, f64) = (44.0, 30.0);
/// Room for half of the last panels' last hour.
const RIGHT: f64 = 10.0;
/// Height of a line of the legend.
const LINE: f64 = 16.0;

/// Programs that show it say by themselves whether it is light or dark around it.
const STYLE: &str = "\
text { font: 11px sans-serif; fill: #24292f } .title { font-weight: 600 } .number { font-size: 10px }
.end { text-anchor: end } .middle { text-anchor: middle }
.ground { fill: #ffffff } .grid { stroke: #d0d7de } .between { stroke: #8c959f; stroke-dasharray: 2 2 }
.curve { fill: none; stroke: #0969da; stroke-width: 1.5; stroke-linecap: round; stroke-linejoin: round }
@media (prefers-color-scheme: dark) {
text { fill: #e6edf3 } .ground { fill: #0d1117 } .grid { stroke: #30363d } .between { stroke: #6e7681 }
.curve { stroke: #58a6ff }
}
";

/// The whole picture as SVG.
pub(crate) fn draw(rows: &[Row]) -> String {
    let lines = ["From left to right:".to_owned()].into_iter().chain(stretches(rows).map(heading));
    let lines: Vec<String> = lines.collect();
    let panels = FIGURES.len().div_ceil(COLUMNS);
    let beside = FIGURES.len() % COLUMNS;
    let legend = ((panels - 1) as f64 * PANEL.1, beside as f64 * PANEL.0 + CORNER.0);
    let height = (legend.0 + CORNER.1 + lines.len() as f64 * LINE).max(panels as f64 * PANEL.1);
    let width = COLUMNS as f64 * PANEL.0 + RIGHT;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" height=\"{height}\">\n\
         <title>What the soak measured, stretch after stretch</title>\n<style>\n{STYLE}</style>\n\
         <rect class=\"ground\" width=\"{width}\" height=\"{height}\"/>\n"
    );
    for (number, figure) in FIGURES.iter().enumerate() {
        let (x, y) = ((number % COLUMNS) as f64 * PANEL.0, (number / COLUMNS) as f64 * PANEL.1);
        svg += &format!("<g transform=\"translate({x} {y})\">\n{}</g>\n", panel(rows, number, figure));
    }
    for (number, line) in lines.iter().enumerate() {
        let y = legend.0 + CORNER.1 + number as f64 * LINE;
        svg += &text(line, legend.1, y, "");
    }
    svg + "</svg>\n"
}

fn panel(rows: &[Row], number: usize, figure: &Figure) -> String {
    let (unit, divisor) = match figure.unit {
        Unit::Bytes => (", MB", 1e6),
        Unit::Number => ("", 1.0),
    };
    let value = |row: &Row| row.figures[number] as f64 / divisor;
    let hours: f64 = stretches(rows).map(length).sum();
    let across = Axis::of(hours, 4.0, PLOT.0).until(hours);
    let up = Axis::of(rows.iter().map(value).fold(0.0, f64::max), 3.0, PLOT.1);
    let (right, bottom) = (CORNER.0 + PLOT.0, CORNER.1 + PLOT.1);
    let mut svg = text(&format!("{}{unit}", figure.title), CORNER.0, CORNER.1 - 10.0, "title");
    for tick in up.ticks() {
        let y = bottom - up.at(tick);
        svg += &line((CORNER.0, y), (right, y), "grid");
        svg += &text(&up.name(tick), CORNER.0 - 5.0, y + 3.5, "number end");
    }
    for tick in across.ticks() {
        let name = if tick > 0.0 { format!("{} h", across.name(tick)) } else { "0".to_owned() };
        svg += &text(&name, CORNER.0 + across.at(tick), bottom + 14.0, "number middle");
    }
    let mut begins = 0.0;
    for stretch in stretches(rows) {
        let x = |hours: f64| CORNER.0 + across.at(begins + hours);
        if begins > 0.0 {
            svg += &line((x(0.0), CORNER.1), (x(0.0), bottom), "between");
        }
        let point = |row: &Row| format!("{:.1},{:.1}", x(at(row)), bottom - up.at(value(row)));
        let points: Vec<String> = stretch.iter().map(point).collect();
        svg += &format!("<polyline class=\"curve\" points=\"{}\"/>\n", points.join(" "));
        begins += length(stretch);
    }
    svg
}

/// When a row was measured, in hours since its stretch began.
fn at(row: &Row) -> f64 {
    row.seconds as f64 / 3600.0
}

/// How many hours a stretch lasted.
fn length(stretch: &[Row]) -> f64 {
    stretch.last().map_or(0.0, at)
}

fn text(text: &str, x: f64, y: f64, class: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\">{text}</text>\n")
}

fn line(from: (f64, f64), to: (f64, f64), class: &str) -> String {
    let ((x1, y1), (x2, y2)) = (from, to);
    format!("<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>\n")
}

/// An axis from 0, with ticks at round numbers.
#[derive(Debug, PartialEq)]
struct Axis {
    /// Where it ends.
    end: f64,
    step: f64,
    /// How long it is drawn.
    length: f64,
}

impl Axis {
    /// One that reaches `most` in so many steps, or fewer.
    fn of(most: f64, steps: f64, length: f64) -> Self {
        let most = if most > 0.0 { most } else { 1.0 };
        let magnitude = 10_f64.powf((most / steps).log10().floor());
        let rounds = [1.0, 2.0, 2.5, 4.0, 5.0, 10.0].map(|round| round * magnitude);
        let step = rounds.into_iter().find(|step| step * steps >= most).unwrap_or(most);
        Self { end: (most / step).ceil() * step, step, length }
    }

    /// The same, but it ends with the data.
    fn until(self, most: f64) -> Self {
        if most > 0.0 { Self { end: most, ..self } } else { self }
    }

    fn ticks(&self) -> impl Iterator<Item = f64> {
        let count = (self.end / self.step + 1e-6).floor() as u32;
        (0..=count).map(|number| f64::from(number) * self.step)
    }

    /// Where a value is, from the axis' beginning.
    fn at(&self, value: f64) -> f64 {
        value / self.end * self.length
    }

    /// A tick in as many digits as the steps need.
    fn name(&self, tick: f64) -> String {
        let digits = (0..4).find(|digits| {
            let scaled = self.step * 10_f64.powi(*digits);
            (scaled - scaled.round()).abs() < 1e-6
        });
        format!("{tick:.0$}", digits.unwrap_or(4) as usize)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::tests::row;

    fn names(axis: &Axis) -> String {
        axis.ticks().map(|tick| axis.name(tick)).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn ticks_are_round_and_few() {
        for (most, ticks) in [
            (0.0, "0.0 0.4 0.8 1.2"),
            (0.1, "0.00 0.04 0.08 0.12"),
            (1.0, "0.0 0.4 0.8 1.2"),
            (8.0, "0 4 8"),
            (19.0, "0 10 20"),
            (21.0, "0 10 20 30"),
            (26.3, "0 10 20 30"),
            (7.4, "0.0 2.5 5.0 7.5"),
            (11_250.0, "0 4000 8000 12000"),
        ] {
            let axis = Axis::of(most, 3.0, 100.0);
            assert_eq!(names(&axis), ticks, "{most}");
            assert!(axis.end >= most);
        }
        assert_eq!(names(&Axis::of(8.5, 4.0, 100.0).until(8.5)), "0.0 2.5 5.0 7.5");
    }

    #[test]
    fn stretches_stand_one_after_another() {
        let rows = [row(1, 1800, 12_000_000), row(1, 3600, 14_000_000), row(2, 1800, 13_000_000)];
        let svg = draw(&rows);
        // The first panel stands for all: they differ in their titles, units and values.
        let (head, rest) = svg.split_once("<g ").unwrap();
        let (first, rest) = rest.split_once("</g>\n").unwrap();
        let legend = rest.rsplit_once("</g>\n").unwrap().1;
        insta::assert_snapshot!(format!("{head}<g {first}</g>\n{legend}"));
        assert_eq!(svg.matches("<polyline").count(), 2 * FIGURES.len());
    }

    #[test]
    fn there_are_axes_before_there_are_rows() {
        let svg = draw(&[]);
        assert_eq!(svg.matches("class=\"title\"").count(), FIGURES.len());
        assert!(!svg.contains("NaN") && !svg.contains("polyline class"));
    }
}
