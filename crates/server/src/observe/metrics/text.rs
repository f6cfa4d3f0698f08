//! Prometheus' text format: lines of metrics, each kind with its head.

use std::fmt::Write as _;

use super::names::Type;

/// Escapes the value of a label.
pub fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}

#[derive(Default)]
pub struct Page(pub String);

impl Page {
    /// Adds a value; what is no number is a status, fine or not. Values of one metric follow each other.
    pub fn add(&mut self, name: &str, help: &str, kind: Type, labels: &str, value: &str) {
        let value = match value.parse::<f64>() {
            Ok(_) => value,
            Err(_) if value == "ok" => "1",
            Err(_) => "0",
        };
        self.head(&format!("redis_{name}"), help, kind);
        match labels {
            "" => writeln!(self.0, "redis_{name} {value}"),
            labels => writeln!(self.0, "redis_{name}{{{labels}}} {value}"),
        }
        .expect("a String takes anything");
    }

    /// A figure that only we have.
    pub fn add_own(&mut self, name: &str, value: &str) {
        self.own_head(name, name, Type::Gauge);
        writeln!(self.0, "{name} {value}").expect("a String takes anything");
    }

    /// A line of the memory map.
    pub fn add_part(&mut self, part: &str, bytes: &str) {
        const NAME: &str = "isotherm_memory_map_bytes";
        self.head(NAME, "Where memory is: `memorymap_*` of INFO.", Type::Gauge);
        writeln!(self.0, "{NAME}{{part=\"{part}\"}} {bytes}").expect("a String takes anything");
    }

    pub fn own_head(&mut self, name: &str, field: &str, kind: Type) {
        self.head(name, &format!("`{field}` of INFO."), kind);
    }

    pub fn head(&mut self, name: &str, help: &str, kind: Type) {
        let head = format!("# HELP {name} {help}\n# TYPE {name} {}\n", kind.name());
        if !self.0.contains(&head) {
            self.0.push_str(&head);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut page = Page::default();
        page.add("a", "A.", Type::Gauge, "", "1");
        page.add("b_total", "B.", Type::Counter, "cmd=\"get\"", "2.5");
        page.add("b_total", "B.", Type::Counter, "cmd=\"set\"", "3");
        page.add("s", "S.", Type::Gauge, "", "ok");
        let expected = "# HELP redis_a A.\n# TYPE redis_a gauge\nredis_a 1\n\
                        # HELP redis_b_total B.\n# TYPE redis_b_total counter\nredis_b_total{cmd=\"get\"} 2.5\n\
                        redis_b_total{cmd=\"set\"} 3\n# HELP redis_s S.\n# TYPE redis_s gauge\nredis_s 1\n";
        assert_eq!(page.0, expected);
        assert_eq!(escaped("a\"b\\\n"), "a\\\"b\\\\\\n");
    }
}
