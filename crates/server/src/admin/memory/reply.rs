//! Tables of figures as replies: a map a row.

use isotherm_resp::Reply;

enum Cell {
    Text(Vec<u8>),
    Number(i64),
    Share(f64),
}

/// Named figures, in the order in which they are said.
#[derive(Default)]
pub struct Row(Vec<(&'static str, Cell)>);

impl Row {
    pub fn text(mut self, name: &'static str, text: &[u8]) -> Row {
        self.0.push((name, Cell::Text(text.to_vec())));
        self
    }

    pub fn number(self, name: &'static str, number: u64) -> Row {
        self.signed(name, number as i64)
    }

    pub fn signed(mut self, name: &'static str, number: i64) -> Row {
        self.0.push((name, Cell::Number(number)));
        self
    }

    /// Adds a share in percent.
    pub fn percent(mut self, name: &'static str, part: u64, whole: u64) -> Row {
        let share = part as f64 * 100.0 / whole.max(1) as f64;
        self.0.push((name, Cell::Share((share * 100.0).round() / 100.0)));
        self
    }

    pub fn write(&self, reply: &mut Reply) {
        reply.map(self.0.len());
        for (name, cell) in &self.0 {
            reply.bulk(name.as_bytes());
            match cell {
                Cell::Text(text) => reply.bulk(text),
                Cell::Number(number) => reply.integer(*number),
                Cell::Share(share) => reply.double(*share),
            }
        }
    }
}

pub fn write_rows(reply: &mut Reply, rows: &[Row]) {
    reply.array(rows.len());
    rows.iter().for_each(|row| row.write(reply));
}
