//! Report of a case to its caller: names and numbers, a line each.

use std::fmt;

use isotherm_probe::Fallible;

#[derive(Default, PartialEq, Debug)]
pub struct Figures(Vec<(String, f64)>);

impl Figures {
    pub fn add(&mut self, name: impl Into<String>, value: f64) {
        self.0.push((name.into(), value));
    }

    pub fn get(&self, name: &str) -> Fallible<f64> {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map(|(_, value)| *value).ok_or_else(|| format!("a case did not report its '{name}'"))
    }

    pub fn parse(text: &str) -> Fallible<Figures> {
        let line = |line: &str| {
            let (name, value) = line.rsplit_once(' ')?;
            Some((name.to_string(), value.parse().ok()?))
        };
        let figures: Option<Vec<_>> = text.lines().map(line).collect();
        figures.map(Figures).ok_or_else(|| format!("a case said what is no figure: {text}"))
    }
}

impl fmt::Display for Figures {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|(name, value)| writeln!(f, "{name} {value}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_come_back() {
        let mut figures = Figures::default();
        figures.add("bytes", 12.0);
        figures.add("ns at 128", 0.25);
        let read = Figures::parse(&figures.to_string()).unwrap();
        assert_eq!(read, figures);
        assert_eq!(read.get("ns at 128"), Ok(0.25));
        assert!(read.get("ns").is_err());
        assert!(Figures::parse("panicked at").is_err());
    }
}
