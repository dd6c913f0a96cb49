//! A chart of lines, as an SVG.

use std::error::Error;
use std::path::Path;

pub(crate) use plotters::chart::SeriesLabelPosition;
use plotters::prelude::*;

const SIZE: (u32, u32) = (860, 420);
/// Told apart by most eyes, on light ground.
const COLOURS: [RGBColor; 5] = [
    RGBColor(0x9a, 0x9a, 0x9a),
    RGBColor(0xd5, 0x5e, 0x00),
    RGBColor(0x00, 0x72, 0xb2),
    RGBColor(0x00, 0x9e, 0x73),
    RGBColor(0xcc, 0x79, 0xa7),
];

pub(crate) struct Chart<'a> {
    pub(crate) title: &'a str,
    pub(crate) x: &'a str,
    pub(crate) y: &'a str,
    /// Where no line is.
    pub(crate) legend: SeriesLabelPosition,
    pub(crate) lines: Vec<(String, Vec<(f64, f64)>)>,
}

impl Chart<'_> {
    pub(crate) fn draw(&self, file: &Path) -> Result<(), Box<dyn Error>> {
        let points = || self.lines.iter().flat_map(|(_, points)| points);
        let first = points().map(|(x, _)| *x).fold(f64::INFINITY, f64::min);
        let last = points().map(|(x, _)| *x).fold(first, f64::max);
        let highest = points().map(|(_, y)| *y).fold(0.0, f64::max);
        if first >= last {
            return Err("nothing to draw".into());
        }
        let root = SVGBackend::new(file, SIZE).into_drawing_area();
        root.fill(&WHITE)?;
        let mut chart = ChartBuilder::on(&root)
            .caption(self.title, ("sans-serif", 20))
            .margin(12)
            .x_label_area_size(44)
            .y_label_area_size(64)
            .build_cartesian_2d(first..last, 0.0..highest * 1.08)?;
        chart
            .configure_mesh()
            .x_desc(self.x)
            .y_desc(self.y)
            .light_line_style(WHITE)
            .bold_line_style(BLACK.mix(0.12))
            .axis_desc_style(("sans-serif", 15))
            .label_style(("sans-serif", 13))
            .x_label_formatter(&|x| format!("{x:.0}"))
            .y_label_formatter(&|y| format!("{y:.0}"))
            .draw()?;
        for ((name, points), colour) in self.lines.iter().zip(COLOURS) {
            let style = colour.stroke_width(2);
            chart
                .draw_series(LineSeries::new(points.iter().copied(), style))?
                .label(name)
                .legend(move |(x, y)| PathElement::new(vec![(x, y), (x + 18, y)], style));
        }
        chart
            .configure_series_labels()
            .position(self.legend.clone())
            .background_style(WHITE.mix(0.85))
            .border_style(BLACK.mix(0.2))
            .label_font(("sans-serif", 14))
            .draw()?;
        root.present()?;
        Ok(())
    }
}
