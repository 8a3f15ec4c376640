//! Line charts as SVG files.

use std::io;
use std::ops::Range;
use std::path::Path;

use num_traits::ToPrimitive;
use plotters::coord::ranged1d::{KeyPointHint, NoDefaultFormatting, ValueFormatter};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};

const SIZE: (u32, u32) = (860, 480);
/// Width of the legend.
const LEGEND: i32 = 230;
const FONT: &str = "sans-serif";

/// Colours that people with colour-blindness tell apart (Okabe and Ito).
const COLOURS: [RGBColor; 7] = [
    RGBColor(0, 114, 178),
    RGBColor(213, 94, 0),
    RGBColor(0, 158, 115),
    RGBColor(204, 121, 167),
    RGBColor(230, 159, 0),
    RGBColor(86, 180, 233),
    RGBColor(60, 60, 60),
];

/// How values are spread along an axis.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Scale {
    /// Evenly, from 0 on.
    Linear,
    /// By their logarithms, with marks at powers of 2.
    Binary,
    /// By their logarithms, with marks at powers of 10 and between them.
    Decimal,
}

/// An axis.
#[derive(Clone, Copy)]
pub struct Axis {
    /// What it shows, with its unit.
    pub label: &'static str,
    pub scale: Scale,
    /// What a mark says.
    pub mark: fn(f64) -> String,
}

/// One line.
pub struct Line {
    pub name: String,
    pub points: Vec<(f64, f64)>,
    pub dashed: bool,
    /// Which colour; lines that belong together share one.
    pub colour: usize,
    /// Whether it is drawn against the axis on the right.
    pub right: bool,
}

/// A chart of some lines.
pub struct Chart {
    pub title: String,
    pub x: Axis,
    pub y: Axis,
    pub right: Option<Axis>,
    pub lines: Vec<Line>,
}

impl Chart {
    /// Writes the chart to a file; none if there is nothing to show.
    pub fn write(&self, path: &Path) -> io::Result<()> {
        if self.lines.iter().all(|line| line.points.is_empty()) {
            return Ok(());
        }
        let text = {
            let mut text = String::new();
            self.draw(SVGBackend::with_string(&mut text, SIZE).into_drawing_area())
                .map_err(|error| io::Error::other(error.to_string()))?;
            text
        };
        std::fs::write(path, text)
    }

    fn draw(
        &self,
        area: DrawingArea<SVGBackend, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        area.fill(&WHITE)?;
        let (plane, legend) = area.split_horizontally(SIZE.0.cast_signed() - LEGEND);
        let side = |right: bool, value: fn(&(f64, f64)) -> f64| {
            let lines = self.lines.iter().filter(move |line| line.right == right);
            lines
                .flat_map(|line| line.points.iter().map(value))
                .collect::<Vec<f64>>()
        };
        let (left_y, right_y) = (side(false, |point| point.1), side(true, |point| point.1));
        let mut all_x = side(false, |point| point.0);
        all_x.extend(side(true, |point| point.0));
        let unused = Axis { ..self.y };
        let right = self.right.unwrap_or(unused);
        let mut builder = ChartBuilder::on(&plane);
        let mut chart = builder
            .caption(&self.title, (FONT, 17))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(62)
            .right_y_label_area_size(if self.right.is_some() { 62 } else { 8 })
            .build_cartesian_2d(self.x.range(&all_x), self.y.range(&left_y))?
            .set_secondary_coord(self.x.range(&all_x), right.range(&right_y));
        chart
            .configure_mesh()
            .light_line_style(TRANSPARENT)
            .bold_line_style(BLACK.mix(0.12))
            .x_desc(self.x.label)
            .y_desc(self.y.label)
            .label_style((FONT, 13))
            .axis_desc_style((FONT, 14))
            .draw()?;
        if self.right.is_some() {
            chart
                .configure_secondary_axes()
                .y_desc(right.label)
                .label_style((FONT, 13))
                .axis_desc_style((FONT, 14))
                .draw()?;
        }
        for line in &self.lines {
            let y = if line.right { &right } else { &self.y };
            let points: Vec<(f64, f64)> = line
                .points
                .iter()
                .map(|(at, value)| (self.x.at(*at), y.at(*value)))
                .collect();
            let style = line.style();
            let dots = (points.len() <= 20 && !line.dashed).then_some(&points);
            let dots = dots.into_iter().flatten();
            let dots = dots.map(|point| Circle::new(*point, 3, style.filled()));
            match (line.right, line.dashed) {
                (false, false) => {
                    chart.draw_series(LineSeries::new(points.iter().copied(), style))?;
                    chart.draw_series(dots)?;
                }
                (false, true) => {
                    let dashes = DashedLineSeries::new(points.iter().copied(), 5, 4, style);
                    chart.draw_series(dashes)?;
                }
                (true, _) => {
                    let dashes = DashedLineSeries::new(points.iter().copied(), 5, 4, style);
                    chart.draw_secondary_series(dashes)?;
                }
            }
        }
        self.draw_legend(&legend)?;
        area.present()?;
        Ok(())
    }

    fn draw_legend(
        &self,
        area: &DrawingArea<SVGBackend, plotters::coord::Shift>,
    ) -> Result<(), Box<dyn std::error::Error>> {
        let text = TextStyle::from((FONT, 13)).pos(Pos::new(HPos::Left, VPos::Center));
        for (number, line) in (0..).zip(&self.lines) {
            let y = 50 + 22 * number;
            let style = line.style();
            let dashes: &[(i32, i32)] = if line.dashed || line.right {
                &[(4, 10), (15, 21), (26, 32)]
            } else {
                &[(4, 32)]
            };
            for (from, to) in dashes {
                area.draw(&PathElement::new(vec![(*from, y), (*to, y)], style))?;
            }
            area.draw(&Text::new(line.name.clone(), (40, y), text.clone()))?;
        }
        Ok(())
    }
}

impl Line {
    fn style(&self) -> ShapeStyle {
        COLOURS[self.colour % COLOURS.len()].stroke_width(2)
    }
}

impl Axis {
    /// Where a value stands.
    fn at(&self, value: f64) -> f64 {
        match self.scale {
            Scale::Linear => value,
            Scale::Binary | Scale::Decimal => value.max(f64::MIN_POSITIVE).log2(),
        }
    }

    /// What has to be shown of it, and where marks stand.
    fn range(&self, values: &[f64]) -> Marked {
        let shown = values.iter().copied().filter(|value| value.is_finite());
        let most = shown.clone().fold(f64::MIN_POSITIVE, f64::max);
        let least = match self.scale {
            Scale::Linear => 0.0,
            Scale::Binary | Scale::Decimal => {
                shown.filter(|value| *value > 0.0).fold(most, f64::min)
            }
        };
        let marks = marks(self.scale, least, most);
        let ends: Range<f64> = match self.scale {
            Scale::Linear => 0.0..(most * 1.05),
            Scale::Binary => (self.at(least) - 0.2)..(self.at(most) + 0.2),
            Scale::Decimal => (self.at(least) - 0.5)..(self.at(most) + 0.5),
        };
        Marked {
            axis: *self,
            ends,
            marks: marks.into_iter().map(|mark| self.at(mark)).collect(),
        }
    }
}

/// An axis with ends and marks, both where they stand.
struct Marked {
    axis: Axis,
    ends: Range<f64>,
    marks: Vec<f64>,
}

impl Ranged for Marked {
    type FormatOption = NoDefaultFormatting;
    type ValueType = f64;

    fn map(&self, at: &f64, (from, to): (i32, i32)) -> i32 {
        let share = (at - self.ends.start) / (self.ends.end - self.ends.start);
        let pixels = (share * f64::from(to - from)).round();
        from + pixels.to_i32().unwrap_or_default()
    }

    fn key_points<Hint: KeyPointHint>(&self, _: Hint) -> Vec<f64> {
        self.marks.clone()
    }

    fn range(&self) -> Range<f64> {
        self.ends.clone()
    }
}

impl ValueFormatter<f64> for Marked {
    fn format_ext(&self, at: &f64) -> String {
        (self.axis.mark)(match self.axis.scale {
            Scale::Linear => *at,
            Scale::Binary | Scale::Decimal => at.exp2(),
        })
    }
}

/// Round numbers from `least` to `most`, a handful where possible.
fn marks(scale: Scale, least: f64, most: f64) -> Vec<f64> {
    const MARKS: f64 = 9.0;
    match scale {
        Scale::Linear => {
            let rough = (most - least) / 6.0;
            let power = 10_f64.powf(rough.log10().floor());
            let step = [1.0, 2.0, 5.0, 10.0]
                .into_iter()
                .map(|factor| factor * power)
                .find(|step| *step >= rough)
                .unwrap_or(rough);
            (0..=((most * 1.05 - least) / step).to_u32().unwrap_or_default())
                .map(|mark| least + f64::from(mark) * step)
                .collect()
        }
        Scale::Binary => {
            let [first, last] =
                [least, most].map(|end| end.log2().round().to_i32().unwrap_or_default());
            let step = (f64::from(last - first) / MARKS).ceil().to_usize();
            let step = step.map_or(1, |step| step.max(1));
            (first..=last)
                .step_by(step)
                .map(|power| 2_f64.powi(power))
                .collect()
        }
        Scale::Decimal => {
            let ends = [least.log10().floor(), most.log10().ceil()];
            let [first, last] = ends.map(|end| end.to_i32().unwrap_or_default());
            let factors: &[f64] = if last - first <= 3 {
                &[1.0, 2.0, 5.0]
            } else {
                &[1.0]
            };
            let all = (first..=last).flat_map(|power| {
                factors
                    .iter()
                    .map(move |factor| factor * 10_f64.powi(power))
            });
            all.filter(|mark| (least * 0.7..=most * 1.4).contains(mark))
                .collect()
        }
    }
}
