//! A declaration as one line of text, as COMMAND INFO reports it. Tests compare such lines with those of a
//! real server.

use super::{Begin, Find, KeySpec, Spec, first_key_range};

impl Spec {
    /// A line of such a table; `name` is the full one, `config|get` for a subcommand.
    pub fn row(&self, name: &str) -> String {
        let (first, last, step) = first_key_range(self).unwrap_or_default();
        let key_specs: Vec<String> = self.key_specs.iter().map(described_keys).collect();
        [
            name,
            &self.arity.to_string(),
            &words(self.shown_flags().names()),
            &format!("{first} {last} {step}"),
            &words(self.acl_categories().names()),
            &words(self.tips.iter().copied()),
            &key_specs.join("; "),
        ]
        .join("\t")
    }
}

fn words<'a>(words: impl Iterator<Item = &'a str>) -> String {
    words.collect::<Vec<_>>().join(" ")
}

fn described_keys(key_spec: &KeySpec) -> String {
    let begin = match key_spec.begin {
        Begin::Index(index) => index.to_string(),
        Begin::Keyword { keyword, start_from } => format!("{keyword} {start_from}"),
        Begin::Unknown => String::new(),
    };
    let find = match key_spec.find {
        Find::Range { last, step, limit } => format!("range {last} {step} {limit}"),
        Find::KeyNum { at, first, step } => format!("keynum {at} {first} {step}"),
        Find::Unknown => "unknown".to_string(),
    };
    format!("{} {begin} {find}", words(key_spec.flags.names()))
}
