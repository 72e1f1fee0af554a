//! Reads of a PromQL expression what rules and dashboards are held to: its selectors, with the function and the range
//! that each stands in, and the labels that it groups and matches by. Whether it is valid is Prometheus' to say.

use std::collections::BTreeSet;

use lanewatch::export::catalogue;

/// Labels that a scrape gives to every series of a target. `site`, `rack` and `cluster` are there only where the scrape
/// configuration sets them.
pub const TARGET_LABELS: [&str; 5] = ["job", "instance", "site", "rack", "cluster"];

/// What an expression asks for.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Expression {
    /// Its selectors, in their order.
    pub selectors: Vec<Selector>,
    /// Labels of `by`, `without`, `on`, `ignoring`, `group_left` and `group_right`, and the sources of `label_replace`.
    pub labels: BTreeSet<String>,
    /// Labels that it makes: the targets of `label_replace` and `label_join`.
    pub made: BTreeSet<String>,
}

/// A selector.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    /// Name of the series; empty where only matchers say it.
    pub name: String,
    /// Its matchers.
    pub matchers: Vec<Matcher>,
    /// What stands in its brackets: `5m`, `$__rate_interval`, `1h:`.
    pub range: Option<String>,
    /// The function or aggregation whose argument it is, by itself.
    pub function: Option<String>,
}

/// A matcher.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Matcher {
    /// Label.
    pub label: String,
    /// `=`, `!=`, `=~` or `!~`.
    pub operator: String,
    /// Value, without its quotes.
    pub value: String,
}

impl Selector {
    /// Whether it has this matcher.
    pub fn matches(&self, label: &str, operator: &str, value: &str) -> bool {
        let is = |m: &Matcher| m.label == label && m.operator == operator && m.value == value;
        self.matchers.iter().any(is)
    }
}

/// What in an expression the catalogue does not know: series that no agent serves, and labels that none of the
/// expression's series have. `recorded` gives the labels of a series that a recording rule makes.
pub fn unknown(found: &Expression, recorded: impl Fn(&str) -> Option<Vec<String>>) -> Vec<String> {
    let (mut unknown, mut labels) = (Vec::new(), found.made.clone());
    labels.extend(TARGET_LABELS.map(str::to_owned));
    for selector in &found.selectors {
        let family = catalogue::families().find(|family| family.name == selector.name);
        let own: Vec<String> = match (family, selector.name.as_str()) {
            (Some(family), _) => family.labels.iter().map(|label| (*label).to_owned()).collect(),
            // Prometheus' own.
            (None, "up" | "scrape_duration_seconds" | "scrape_samples_scraped" | "scrape_series_added") => Vec::new(),
            (None, "ALERTS" | "ALERTS_FOR_STATE") => {
                ["alertname", "alertstate", "severity", "check", "subject", "device", "port", "link", "pci_address"]
                    .map(str::to_owned)
                    .to_vec()
            }
            (None, name) => recorded(name).unwrap_or_else(|| {
                unknown.push(format!("no series {name:?}"));
                Vec::new()
            }),
        };
        for Matcher { label, .. } in &selector.matchers {
            if !own.contains(label) && !TARGET_LABELS.contains(&label.as_str()) {
                unknown.push(format!("{} has no label {label:?}", selector.name));
            }
        }
        labels.extend(own);
    }
    let strange = found.labels.iter().filter(|label| !labels.contains(*label));
    unknown.extend(strange.map(|label| format!("no label {label:?}")));
    unknown
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Token {
    /// A name, a keyword or a number.
    Word(String),
    Text(String),
    /// What stands between brackets.
    Range(String),
    Sign(String),
}

const LISTS: [&str; 6] = ["by", "without", "on", "ignoring", "group_left", "group_right"];
const KEYWORDS: [&str; 9] = ["and", "or", "unless", "bool", "offset", "inf", "nan", "atan2", "start"];
const MAKERS: [&str; 2] = ["label_replace", "label_join"];

/// Reads an expression.
///
/// # Errors
/// What of it is not PromQL, as far as this looks.
pub fn parse(expression: &str) -> Result<Expression, String> {
    let tokens = tokens(expression)?;
    let mut reader = Reader { tokens: &tokens, at: 0, calls: Vec::new(), found: Expression::default() };
    while reader.at < tokens.len() {
        reader.step().map_err(|error| format!("{error} in {expression}"))?;
    }
    if !reader.calls.is_empty() {
        return Err(format!("a parenthesis is open in {expression}"));
    }
    Ok(reader.found)
}

/// An open parenthesis: whose arguments stand in it, and how many are done.
struct Call {
    name: Option<String>,
    done: usize,
}

struct Reader<'t> {
    tokens: &'t [Token],
    at: usize,
    calls: Vec<Call>,
    found: Expression,
}

impl Reader<'_> {
    fn next(&mut self) -> Option<&Token> {
        self.at += 1;
        self.tokens.get(self.at - 1)
    }

    fn is_sign(&self, ahead: usize, sign: &str) -> bool {
        matches!(self.tokens.get(self.at + ahead), Some(Token::Sign(found)) if found == sign)
    }

    fn step(&mut self) -> Result<(), String> {
        match self.tokens[self.at].clone() {
            Token::Word(word) if LISTS.contains(&word.as_str()) => {
                self.at += 1;
                self.list()
            }
            Token::Word(word) if is_plain(&word) => {
                self.at += 1;
                Ok(())
            }
            Token::Word(word) => {
                self.at += 1;
                if self.is_sign(0, "(") {
                    self.at += 1;
                    self.calls.push(Call { name: Some(word), done: 0 });
                    return Ok(());
                }
                // An aggregation whose labels come first.
                if matches!(self.tokens.get(self.at), Some(Token::Word(next)) if next == "by" || next == "without") {
                    self.at += 1;
                    self.list()?;
                    if !self.is_sign(0, "(") {
                        return Err(format!("{word} of nothing"));
                    }
                    self.at += 1;
                    self.calls.push(Call { name: Some(word), done: 0 });
                    return Ok(());
                }
                self.selector(word)
            }
            Token::Sign(sign) if sign == "{" => self.selector(String::new()),
            Token::Sign(sign) => {
                self.at += 1;
                match sign.as_str() {
                    "(" => self.calls.push(Call { name: None, done: 0 }),
                    ")" => drop(self.calls.pop().ok_or("a parenthesis too many")?),
                    "," => self.calls.last_mut().ok_or("a comma too many")?.done += 1,
                    _ => {}
                }
                Ok(())
            }
            Token::Text(text) => {
                self.at += 1;
                if let Some(call) = self.calls.last()
                    && MAKERS.contains(&call.name.as_deref().unwrap_or_default())
                {
                    match call.done {
                        1 => drop(self.found.made.insert(text)),
                        3.. if call.done == 3 || call.name.as_deref() == Some("label_join") => {
                            self.found.labels.insert(text);
                        }
                        _ => {}
                    }
                }
                Ok(())
            }
            // A range of something that is no selector: a subquery.
            Token::Range(_) => {
                self.at += 1;
                Ok(())
            }
        }
    }

    /// `(a, b)`; `group_left` may go without.
    fn list(&mut self) -> Result<(), String> {
        if !self.is_sign(0, "(") {
            return Ok(());
        }
        self.at += 1;
        loop {
            match self.next().cloned() {
                Some(Token::Word(label)) => drop(self.found.labels.insert(label)),
                Some(Token::Sign(sign)) if sign == ")" => return Ok(()),
                Some(Token::Sign(sign)) if sign == "," => {}
                other => return Err(format!("{other:?} in a list of labels")),
            }
        }
    }

    fn selector(&mut self, name: String) -> Result<(), String> {
        let mut matchers = Vec::new();
        if self.is_sign(0, "{") {
            self.at += 1;
            while !self.is_sign(0, "}") {
                match (self.next().cloned(), self.next().cloned(), self.next().cloned()) {
                    (Some(Token::Word(label)), Some(Token::Sign(operator)), Some(Token::Text(value)))
                        if ["=", "!=", "=~", "!~"].contains(&operator.as_str()) =>
                    {
                        matchers.push(Matcher { label, operator, value });
                    }
                    other => return Err(format!("{other:?} is no matcher")),
                }
                if self.is_sign(0, ",") {
                    self.at += 1;
                }
            }
            self.at += 1;
        }
        let range = match self.tokens.get(self.at) {
            Some(Token::Range(range)) => {
                self.at += 1;
                Some(range.clone())
            }
            _ => None,
        };
        let function = self.calls.last().and_then(|call| call.name.clone());
        self.found.selectors.push(Selector { name, matchers, range, function });
        Ok(())
    }
}

/// A keyword, a number or a duration.
fn is_plain(word: &str) -> bool {
    word.starts_with(|c: char| c.is_ascii_digit() || c == '.' || c == '$')
        || KEYWORDS.contains(&word.to_ascii_lowercase().as_str())
}

fn tokens(expression: &str) -> Result<Vec<Token>, String> {
    let mut rest = expression.trim_start();
    let mut tokens = Vec::new();
    while let Some(first) = rest.chars().next() {
        let (token, length) = match first {
            '#' => {
                rest = rest.split_once('\n').map_or("", |(_, rest)| rest).trim_start();
                continue;
            }
            '"' | '\'' | '`' => quoted(rest, first)?,
            '[' => {
                let end = rest.find(']').ok_or_else(|| format!("a bracket is open in {expression}"))?;
                (Token::Range(rest[1..end].trim().to_owned()), end + 1)
            }
            c if c.is_ascii_alphanumeric() || "_:$.".contains(c) => {
                let word = |c: char| !(c.is_ascii_alphanumeric() || "_:$.".contains(c));
                let end = rest.find(word).unwrap_or(rest.len());
                (Token::Word(rest[..end].to_owned()), end)
            }
            _ => {
                let long = ["=~", "!~", "!=", "==", "<=", ">="].into_iter().find(|sign| rest.starts_with(sign));
                let sign = long.map_or_else(|| first.to_string(), str::to_owned);
                let length = sign.len();
                (Token::Sign(sign), length)
            }
        };
        tokens.push(token);
        rest = rest[length..].trim_start();
    }
    Ok(tokens)
}

fn quoted(rest: &str, quote: char) -> Result<(Token, usize), String> {
    let (mut value, mut escaped) = (String::new(), false);
    for (at, c) in rest.char_indices().skip(1) {
        match c {
            _ if escaped => {
                if c != quote && c != '\\' {
                    value.push('\\');
                }
                value.push(c);
                escaped = false;
            }
            '\\' if quote != '`' => escaped = true,
            _ if c == quote => return Ok((Token::Text(value), at + c.len_utf8())),
            _ => value.push(c),
        }
    }
    Err(format!("a quote is open in {rest}"))
}
