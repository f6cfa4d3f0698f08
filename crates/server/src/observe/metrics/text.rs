//! Prometheus' text format: lines of metrics, each kind with its head.

use std::fmt::{Display, Write as _};

use crate::observe::info::row::Type;

/// Escapes the value of a label.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Default)]
pub struct Page {
    pub text: String,
    /// Metric of the last head.
    last: String,
}

impl Page {
    /// Adds a value. Values of one metric follow each other.
    pub fn add(&mut self, name: &str, help: &str, kind: Type, labels: &str, value: impl Display) {
        self.head(name, help, kind);
        match labels {
            "" => writeln!(self.text, "{name} {value}"),
            labels => writeln!(self.text, "{name}{{{labels}}} {value}"),
        }
        .expect("a String takes anything");
    }

    pub fn head(&mut self, name: &str, help: &str, kind: Type) {
        if self.last != name {
            self.last = name.to_string();
            write!(self.text, "# HELP {name} {help}\n# TYPE {name} {}\n", kind.name())
                .expect("a String takes anything");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut page = Page::default();
        page.add("a", "A.", Type::Gauge, "", 1);
        page.add("b_total", "B.", Type::Counter, "cmd=\"get\"", "2.5");
        page.add("b_total", "B.", Type::Counter, "cmd=\"set\"", 3);
        let expected = "# HELP a A.\n# TYPE a gauge\na 1\n\
                        # HELP b_total B.\n# TYPE b_total counter\nb_total{cmd=\"get\"} 2.5\n\
                        b_total{cmd=\"set\"} 3\n";
        assert_eq!(page.text, expected);
        assert_eq!(escaped("a\"b\\\n"), "a\\\"b\\\\\\n");
    }
}
