//! A chart of a table: a bar for each number, grouped by row; or a line for each column over the first.
//!
//! ```text
//!   skip list   |############## 102.2          100 +--_
//!               |############## 101.9              |   -_/-_
//!   radix tree  |########## 67.2                 0 +---------- keys
//! ```

use crate::output::{Cell, Table};

const WIDTH: f64 = 920.0;
const LEFT: f64 = 310.0;
const BAR: f64 = 13.0;
const GAP: f64 = 12.0;
const TOP: f64 = 46.0;
/// Hues that differ for the colour-blind too (Okabe and Ito).
const COLOURS: [&str; 9] =
    ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#f0e442", "#999999", "#000000"];

pub fn bars(table: &Table, unit: &str) -> String {
    let numbers: Vec<usize> = (0..table.head.len())
        .filter(|&column| table.rows.iter().any(|row| matches!(row[column], Cell::Number(..))))
        .collect();
    let largest = table.rows.iter().flatten().map(value).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let mut body = String::new();
    let mut y = TOP + 16.0 * numbers.len().div_ceil(3) as f64;
    legend(table, &numbers, &mut body);
    for row in &table.rows {
        let label: Vec<&str> = row
            .iter()
            .filter_map(|cell| if let Cell::Text(text) = cell { Some(text.as_str()) } else { None })
            .collect();
        text(&mut body, LEFT - 8.0, y + BAR - 2.0, "end", &label.join(", "));
        for (at, &column) in numbers.iter().enumerate() {
            let Cell::Number(number, decimals) = row[column] else { continue };
            let width = (number.max(0.0) / largest * (WIDTH - LEFT - 90.0)).max(0.5);
            let colour = COLOURS[at % COLOURS.len()];
            body += &format!(
                "<rect x=\"{LEFT}\" y=\"{y}\" width=\"{width:.1}\" height=\"{BAR}\" fill=\"{colour}\"/>\n"
            );
            text(&mut body, LEFT + width + 5.0, y + BAR - 2.0, "start", &format!("{number:.decimals$}"));
            y += BAR + 2.0;
        }
        y += GAP;
    }
    page(table, unit, y + 10.0, &body)
}

/// Height of the field that lines are drawn in.
const FIELD: f64 = 360.0;
const MARGIN: f64 = 60.0;
const TICKS: usize = 5;

pub fn lines(table: &Table, unit: &str) -> String {
    let series: Vec<usize> = (1..table.head.len()).collect();
    let column = |column: usize| table.rows.iter().map(move |row| value(&row[column]));
    let widest = column(0).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let highest = series.iter().flat_map(|&at| column(at)).fold(0.0, f64::max).max(f64::MIN_POSITIVE);
    let highest = round_step(highest / TICKS as f64) * TICKS as f64;
    let top = TOP + 16.0 * series.len().div_ceil(3) as f64;
    let right = WIDTH - 2.0 * MARGIN;
    let (x, y) = (|x: f64| MARGIN + x / widest * right, |y: f64| top + FIELD - y / highest * FIELD);
    let mut body = String::new();
    legend(table, &series, &mut body);
    for tick in 0..=TICKS {
        let part = tick as f64 / TICKS as f64;
        let (across, up) = (part * widest, part * highest);
        body += &format!("<path d=\"M{MARGIN} {:.1}H{:.1}\" stroke=\"#dddddd\"/>\n", y(up), MARGIN + right);
        text(&mut body, MARGIN - 6.0, y(up) + 4.0, "end", &format!("{up:.0}"));
        text(&mut body, x(across), top + FIELD + 16.0, "middle", &format!("{across:.0}"));
    }
    text(&mut body, MARGIN + right / 2.0, top + FIELD + 32.0, "middle", &table.head[0]);
    for (at, &place) in series.iter().enumerate() {
        let points: Vec<String> = table
            .rows
            .iter()
            .filter(|row| row[place] != Cell::Empty)
            .map(|row| format!("{:.1},{:.1}", x(value(&row[0])), y(value(&row[place]))))
            .collect();
        body += &format!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{}\" stroke-width=\"1.5\"/>\n",
            points.join(" "),
            COLOURS[at % COLOURS.len()]
        );
    }
    page(table, unit, top + FIELD + 46.0, &body)
}

/// The next of 1, 2, 2.5, 5, 10, 20, ...: what can be read off an axis.
fn round_step(step: f64) -> f64 {
    let ten = 10f64.powf(step.log10().floor());
    [1.0, 2.0, 2.5, 5.0, 10.0]
        .map(|times| times * ten)
        .into_iter()
        .find(|round| *round >= step)
        .unwrap_or(step)
}

fn page(table: &Table, unit: &str, height: f64, body: &str) -> String {
    let mut title = String::new();
    text(&mut title, 10.0, 22.0, "start", &format!("{} ({unit})", table.title));
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height:.0}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n\
         {title}{body}</svg>\n"
    )
}

fn value(cell: &Cell) -> f64 {
    if let Cell::Number(value, _) = cell { *value } else { 0.0 }
}

fn legend(table: &Table, numbers: &[usize], body: &mut String) {
    for (at, &column) in numbers.iter().enumerate() {
        let (x, y) = (LEFT + (at % 3) as f64 * 200.0, 34.0 + (at / 3) as f64 * 16.0);
        let colour = COLOURS[at % COLOURS.len()];
        *body += &format!("<rect x=\"{x}\" y=\"{y}\" width=\"10\" height=\"10\" fill=\"{colour}\"/>\n");
        text(body, x + 15.0, y + 9.0, "start", &table.head[column]);
    }
}

fn text(body: &mut String, x: f64, y: f64, anchor: &str, words: &str) {
    let words = words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;");
    *body += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bar_for_each_number() {
        let mut table = Table::new("t", "Bytes & keys", &["map", "jemalloc", "system"]);
        table.row(vec![Cell::text("skip list"), Cell::Number(102.2, 1), Cell::Number(120.0, 1)]);
        table.row(vec![Cell::text("none"), Cell::Number(0.0, 1), Cell::Empty]);
        let svg = bars(&table, "bytes");
        // The ground, two of the legend, three bars.
        assert_eq!(svg.matches("<rect").count(), 6, "{svg}");
        assert!(svg.contains("Bytes &amp; keys (bytes)") && svg.contains(">102.2<"), "{svg}");
    }

    #[test]
    fn axes_have_round_numbers() {
        for (step, round) in [(20.0, 20.0), (21.0, 25.0), (0.3, 0.5), (999.0, 1000.0), (60.6, 100.0)] {
            assert!((round_step(step) / round - 1.0).abs() < 1e-9, "{step}");
        }
    }

    #[test]
    fn a_line_for_each_column() {
        let mut table = Table::new("t", "Growth", &["keys", "ours", "theirs"]);
        for (keys, ours, theirs) in [(100.0, 40.0, 90.0), (200.0, 41.0, 100.0)] {
            table.row([keys, ours, theirs].map(|number| Cell::Number(number, 1)).to_vec());
        }
        let svg = lines(&table, "bytes");
        assert_eq!(svg.matches("<polyline").count(), 2, "{svg}");
        // The last point of the highest line: the field's upper right corner.
        assert!(svg.contains("860.0,62.0\" fill"), "{svg}");
        assert!(svg.contains(">keys<") && svg.contains(">theirs<"), "{svg}");
    }
}
