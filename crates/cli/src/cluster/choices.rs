//! The options of the cluster manager: those of valkey-cli, under both of its names for primaries.

use crate::options::ours_or_theirs;
use crate::text::{leading_f64, leading_i64};

/// Time that MIGRATE may wait for the other node, in milliseconds.
const MIGRATE_TIMEOUT_MS: i64 = 60_000;
/// Keys that one MIGRATE takes.
const KEYS_PER_MIGRATE: i64 = 10;
const THRESHOLD_PERCENT: f64 = 2.0;

/// Quantity that `rebalance` makes equal.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub enum By {
    #[default]
    Slots,
    Bytes,
    Cpu,
}

#[derive(Clone, PartialEq, Debug)]
pub struct Choices {
    /// Empty: no `--cluster`.
    pub command: String,
    pub args: Vec<Vec<u8>>,
    pub yes: bool,
    pub replicas: usize,
    pub from: Option<String>,
    pub to: Option<String>,
    pub from_user: Option<String>,
    pub from_password: Option<String>,
    pub ask_from_password: bool,
    pub weights: Vec<String>,
    pub slots: i64,
    pub timeout_ms: i64,
    pub pipeline: i64,
    pub threshold: f64,
    pub simulate: bool,
    pub replace: bool,
    pub copy: bool,
    pub as_replica: bool,
    pub primary_id: Option<String>,
    pub use_empty_primaries: bool,
    pub search_several_owners: bool,
    pub fix_with_unreachable: bool,
    pub only_primaries: bool,
    pub only_replicas: bool,
    pub atomic: bool,
    pub by: By,
}

impl Default for Choices {
    fn default() -> Choices {
        Choices {
            command: String::new(),
            args: Vec::new(),
            yes: false,
            replicas: 0,
            from: None,
            to: None,
            from_user: None,
            from_password: None,
            ask_from_password: false,
            weights: Vec::new(),
            slots: 0,
            timeout_ms: MIGRATE_TIMEOUT_MS,
            pipeline: KEYS_PER_MIGRATE,
            threshold: THRESHOLD_PERCENT,
            simulate: false,
            replace: false,
            copy: false,
            as_replica: false,
            primary_id: None,
            use_empty_primaries: false,
            search_several_owners: false,
            fix_with_unreachable: false,
            only_primaries: false,
            only_replicas: false,
            atomic: false,
            by: By::Slots,
        }
    }
}

impl Choices {
    /// Takes an option. `rest` is what follows it; the answer is how many of those words belong to it, or
    /// `None` if it is no option of ours or lacks its value.
    pub fn take(&mut self, option: &str, rest: &[Vec<u8>]) -> Result<Option<usize>, String> {
        if self.switch(option) {
            return Ok(Some(0));
        }
        let Some(value) = rest.first() else { return Ok(None) };
        let text = String::from_utf8_lossy(value).into_owned();
        match option {
            "--cluster" => return Ok(Some(self.command_with_args(text, rest))),
            "--cluster-replicas" => self.replicas = usize::try_from(leading_i64(&text)).unwrap_or(0),
            "--cluster-master-id" | "--cluster-primary-id" => self.primary_id = Some(text),
            "--cluster-from" => self.from = Some(text),
            "--cluster-to" => self.to = Some(text),
            "--cluster-from-user" => self.from_user = Some(text),
            "--cluster-from-pass" => self.from_password = Some(text),
            "--cluster-slots" => self.slots = leading_i64(&text),
            "--cluster-timeout" => self.timeout_ms = leading_i64(&text),
            "--cluster-pipeline" => self.pipeline = leading_i64(&text),
            "--cluster-threshold" => self.threshold = leading_f64(&text),
            "--cluster-weight" => return self.weigh(rest).map(Some),
            _ => return Ok(None),
        }
        Ok(Some(1))
    }

    fn switch(&mut self, option: &str) -> bool {
        match option {
            "--cluster-yes" => self.yes = true,
            "--cluster-simulate" => self.simulate = true,
            "--cluster-replace" => self.replace = true,
            "--cluster-copy" => self.copy = true,
            "--cluster-slave" | "--cluster-replica" => self.as_replica = true,
            "--cluster-use-empty-masters" | "--cluster-use-empty-primaries" => {
                self.use_empty_primaries = true
            }
            "--cluster-search-multiple-owners" => self.search_several_owners = true,
            "--cluster-fix-with-unreachable-masters" | "--cluster-fix-with-unreachable-primaries" => {
                self.fix_with_unreachable = true;
            }
            "--cluster-only-masters" | "--cluster-only-primaries" => self.only_primaries = true,
            "--cluster-only-replicas" => self.only_replicas = true,
            "--cluster-from-askpass" => self.ask_from_password = true,
            "--cluster-use-atomic-slot-migration" => self.atomic = true,
            // COMPAT(tools): isotherm-cli --cluster rebalance takes --by-bytes and --by-cpu: slots weigh what
            // CLUSTER SLOT-STATS says. Why: slots of equal number are seldom of equal size.
            "--by-bytes" | "--cluster-by-bytes" => self.by = By::Bytes,
            "--by-cpu" | "--cluster-by-cpu" => self.by = By::Cpu,
            _ => return false,
        }
        true
    }

    /// The command is the next word, and its arguments are the words up to the next option.
    fn command_with_args(&mut self, command: String, rest: &[Vec<u8>]) -> usize {
        self.command = command;
        1 + self.take_args(&rest[1..])
    }

    /// Words that are no options; those that come first are the arguments, later ones are passed over, as in
    /// valkey-cli.
    pub fn take_args(&mut self, words: &[Vec<u8>]) -> usize {
        let count = words.iter().take_while(|word| !word.starts_with(b"-")).count();
        if self.args.is_empty() {
            self.args = words[..count].to_vec();
        }
        count
    }

    fn weigh(&mut self, rest: &[Vec<u8>]) -> Result<usize, String> {
        if !self.weights.is_empty() {
            return Err("WARNING: you cannot use --cluster-weight more than once.\n\
                        You can set more weights by adding them as a space-separated list, ie:\n\
                        --cluster-weight n1=w n2=w"
                .to_string());
        }
        let is_weight = |word: &&Vec<u8>| !word.starts_with(b"--") && word.contains(&b'=');
        let weights = rest.iter().take_while(is_weight);
        self.weights = weights.map(|word| String::from_utf8_lossy(word).into_owned()).collect();
        Ok(self.weights.len())
    }

    /// Adds the choices that the environment makes.
    pub fn finish(&mut self) {
        self.yes |= ours_or_theirs("CLUSTER_YES").is_some_and(|value| value == "1");
    }

    pub fn keys_per_migrate(&self) -> usize {
        usize::try_from(self.pipeline).unwrap_or(0).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Choices {
        let words: Vec<Vec<u8>> = line.split(' ').map(|word| word.as_bytes().to_vec()).collect();
        let (mut choices, mut at) = (Choices::default(), 0);
        while at < words.len() {
            let word = String::from_utf8_lossy(&words[at]).into_owned();
            if word.starts_with('-') {
                at += 1 + choices.take(&word, &words[at + 1..]).unwrap().unwrap_or_else(|| panic!("{word}"));
            } else {
                at += choices.take_args(&words[at..]);
            }
        }
        choices
    }

    #[test]
    fn arguments_stand_behind_the_command_or_behind_options() {
        let args = |line: &str| {
            let choices = parse(line);
            let args = choices.args.iter().map(|arg| String::from_utf8_lossy(arg).into_owned());
            (choices.command, args.collect::<Vec<_>>().join(" "))
        };
        let (command, found) = args("--cluster create a:1 b:2 --cluster-replicas 1 c:3");
        assert_eq!((command.as_str(), found.as_str()), ("create", "a:1 b:2"));
        let (command, found) = args("--cluster-yes --cluster reshard --cluster-slots 5 h:1");
        assert_eq!((command.as_str(), found.as_str()), ("reshard", "h:1"));
    }

    #[test]
    fn both_names_of_an_option() {
        let old =
            parse("--cluster-master-id x --cluster-slave --cluster-use-empty-masters --cluster-only-masters");
        let new = parse(
            "--cluster-primary-id x --cluster-replica --cluster-use-empty-primaries --cluster-only-primaries",
        );
        assert_eq!(old, new);
        let weighed = parse("--cluster-weight a=1 b=2.5 --cluster-threshold 3.5 --by-cpu");
        assert_eq!((weighed.weights.len(), weighed.threshold, weighed.by), (2, 3.5, By::Cpu));
        let words: Vec<Vec<u8>> = vec![b"c=1".to_vec()];
        assert!(weighed.clone().take("--cluster-weight", &words).is_err());
        assert_eq!(Choices::default().take("--cluster-to", &[]), Ok(None));
        assert_eq!(Choices::default().take("--nonsense", &words), Ok(None));
    }
}
