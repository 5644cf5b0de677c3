//! One line of a script: words, then options `key=value`.

use std::collections::BTreeMap;
use std::str::FromStr;

use ringfence::locks::{
    BARRIER_DEFAULT, Claim, Handoff, Millis, Mode, Note, RequestId, ResourceName, Terms, Token,
    Value, Wait,
};

/// A line, word by word. What nobody asked for is an error at the end.
pub struct Line<'a> {
    pub verb: &'a str,
    words: Vec<&'a str>,
    options: BTreeMap<&'a str, &'a str>,
}

impl<'a> Line<'a> {
    pub fn read(text: &'a str) -> Result<Self, String> {
        let mut all = text.split_whitespace();
        let verb = all.next().ok_or("an empty line is no command")?;
        let (mut words, mut options) = (Vec::new(), BTreeMap::new());
        for word in all {
            match word.split_once('=') {
                Some((key, value)) => drop(options.insert(key, value)),
                None => words.push(word),
            }
        }
        words.reverse();
        Ok(Self { verb, words, options })
    }

    /// The next word.
    pub fn word(&mut self, what: &str) -> Result<&'a str, String> {
        self.words.pop().ok_or_else(|| format!("{} needs {what}", self.verb))
    }

    /// All words that are left.
    pub fn rest(&mut self) -> Vec<&'a str> {
        let mut rest = std::mem::take(&mut self.words);
        rest.reverse();
        rest
    }

    /// An option, read by `read`.
    pub fn option<T>(
        &mut self,
        key: &str,
        read: impl Fn(&'a str) -> Result<T, String>,
    ) -> Result<Option<T>, String> {
        self.options.remove(key).map(read).transpose()
    }

    /// All options that are left.
    pub fn rest_of_options(&mut self) -> BTreeMap<&'a str, &'a str> {
        std::mem::take(&mut self.options)
    }

    /// `wait` or `wait=30s`, else a try.
    pub fn wait(&mut self) -> Result<Wait, String> {
        if let Some(deadline) = self.option("wait", millis)? {
            return Ok(Wait::UpTo(deadline));
        }
        Ok(if self.has("wait") { Wait::UpTo(Millis(60_000)) } else { Wait::Try })
    }

    /// What is asked for: all words that are left are names.
    pub fn claim(&mut self) -> Result<Claim, String> {
        let mut mode = Mode::Exclusive;
        if self.has("shared") {
            mode = Mode::Shared;
        }
        if let Some(of) = self.option("slots", number)? {
            mode = Mode::Slots { of };
        }
        let mut handoff = Handoff::Plain;
        if self.has("strict") {
            handoff = Handoff::Strict { barrier: BARRIER_DEFAULT };
        }
        if let Some(barrier) = self.option("strict", millis)? {
            handoff = Handoff::Strict { barrier };
        }
        let lock_delay = self.option("delay", millis)?.unwrap_or_default();
        let value = self.option("value", value)?.unwrap_or_default();
        let names = self.rest().into_iter().map(resource).collect::<Result<Vec<_>, _>>()?;
        let terms = Terms { lock_delay, handoff, value };
        Claim::new(names, mode, terms).map_err(|e| e.to_string())
    }

    /// Who administers, and why.
    pub fn note(&mut self) -> Result<Note, String> {
        let actor = self.option("by", Ok)?.unwrap_or("ops");
        let reason = self.option("why", Ok)?.unwrap_or("");
        Note::new(actor, reason).map_err(|e| e.to_string())
    }

    /// Whether this word stands there; it is taken out.
    fn has(&mut self, word: &str) -> bool {
        let before = self.words.len();
        self.words.retain(|other| *other != word);
        self.words.len() < before
    }

    /// Nothing is left over.
    pub fn end(&self) -> Result<(), String> {
        match (self.words.first(), self.options.first_key_value()) {
            (None, None) => Ok(()),
            (Some(word), _) => Err(format!("{} knows no {word}", self.verb)),
            (None, Some((key, _))) => Err(format!("{} knows no {key}=", self.verb)),
        }
    }
}

pub fn number<T: FromStr>(text: &str) -> Result<T, String> {
    text.parse().map_err(|_| format!("not a number: {text}"))
}

pub fn millis(text: &str) -> Result<Millis, String> {
    let units = [("ms", 1), ("s", 1_000), ("h", 3_600_000)];
    let read = units.iter().find_map(|(unit, length)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        Some(Millis(count * length))
    });
    read.ok_or_else(|| format!("not a time: {text}"))
}

pub fn request(text: &str) -> Result<RequestId, String> {
    RequestId::new(number(text)?).map_err(|e| e.to_string())
}

pub fn requests(text: &str) -> Result<Vec<RequestId>, String> {
    text.split(',').map(request).collect()
}

pub fn token(text: &str) -> Result<Token, String> {
    Token::new(number(text)?).map_err(|e| e.to_string())
}

pub fn value(text: &str) -> Result<Value, String> {
    Value::new(text.as_bytes()).map_err(|e| e.to_string())
}

pub fn resource(text: &str) -> Result<ResourceName, String> {
    ResourceName::new(text).map_err(|e| e.to_string())
}

/// `printer#7`: a resource and a token.
pub fn held(text: &str) -> Result<(ResourceName, Token), String> {
    let (name, token) = text.split_once('#').ok_or_else(|| format!("not NAME#TOKEN: {text}"))?;
    Ok((resource(name)?, self::token(token)?))
}
