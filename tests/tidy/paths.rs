//! Reads Rust text far enough to know which paths it names and on which lines.

/// A path as it stands in the text, resolved to the crate root where it starts with
/// `crate`, `self`, `super` or `ringfence`. A method call is `.name`, a macro call `name!`.
#[derive(Debug, PartialEq, Eq)]
pub struct Named {
    /// Counted from 1.
    pub line: usize,
    /// Segments joined by `::`; groups are expanded, one path for each leaf.
    pub path: String,
}

/// All paths that `text` names outside comments and literals. `file` is relative to `src/`.
pub fn named(file: &str, text: &str) -> Vec<Named> {
    let blanked = blank(text);
    let tokens = tokens(&blanked);
    let mut reader =
        Reader { tokens: &tokens, at: 0, depth: 0, modules: modules_of(file), found: vec![] };
    reader.read();
    reader.found
}

/// The modules a file stands in, with the brace depth at which each was entered.
fn modules_of(file: &str) -> Vec<(usize, String)> {
    let stem = file.trim_end_matches(".rs");
    let stem = stem.trim_end_matches("/mod");
    match stem {
        "lib" | "main" => vec![],
        _ => stem.split('/').map(|name| (0, name.to_owned())).collect(),
    }
}

struct Reader<'a> {
    tokens: &'a [(usize, &'a str)],
    at: usize,
    depth: usize,
    modules: Vec<(usize, String)>,
    found: Vec<Named>,
}

impl<'a> Reader<'a> {
    fn read(&mut self) {
        while let Some(token) = self.peek(0) {
            match token {
                "{" => self.depth += 1,
                "}" => self.close(),
                "mod" if self.peek(2) == Some("{") => {
                    self.depth += 1;
                    self.modules.push((self.depth, self.peek(1).unwrap_or_default().to_owned()));
                    self.at += 2;
                }
                _ if is_word(token) => {
                    self.path(String::new());
                    continue;
                }
                _ => {}
            }
            self.at += 1;
        }
    }

    fn close(&mut self) {
        if self.depth > 0 && self.modules.last().is_some_and(|(depth, _)| *depth == self.depth) {
            self.modules.pop();
        }
        self.depth = self.depth.saturating_sub(1);
    }

    /// Reads from a word to the end of its path, groups included.
    fn path(&mut self, mut prefix: String) {
        let method = prefix.is_empty() && self.before(1) == "." && self.before(2) != ".";
        if method {
            prefix.push('.');
        }
        while let Some(word) = self.peek(0) {
            let line = self.tokens[self.at].0;
            prefix.push_str(word);
            self.at += 1;
            if self.peek(0) != Some("::") {
                if self.peek(0) == Some("!") && self.peek(1) != Some("=") {
                    prefix.push('!');
                }
                return self.found(line, &prefix);
            }
            self.at += 1;
            match self.peek(0) {
                Some("{") => return self.group(&format!("{prefix}::")),
                Some(next) if is_word(next) || next == "*" => prefix.push_str("::"),
                _ => return self.found(line, &prefix),
            }
        }
    }

    /// Reads `{a, b::{c, d as e}}` behind `prefix`.
    fn group(&mut self, prefix: &str) {
        self.at += 1;
        while let Some(token) = self.peek(0) {
            match token {
                "}" => {
                    self.at += 1;
                    return;
                }
                "as" => self.at += 2,
                _ if is_word(token) || token == "*" => self.path(prefix.to_owned()),
                _ => self.at += 1,
            }
        }
    }

    fn found(&mut self, line: usize, path: &str) {
        let (first, rest) = path.split_once("::").unwrap_or((path, ""));
        let mut here: Vec<&str> = self.modules.iter().map(|(_, name)| name.as_str()).collect();
        let mut rest = rest;
        match first {
            "crate" | "ringfence" => here.clear(),
            "super" => {
                here.pop();
                while let Some(further) = rest.strip_prefix("super::") {
                    here.pop();
                    rest = further;
                }
            }
            "self" => {}
            _ => return self.found.push(Named { line, path: path.to_owned() }),
        }
        // `self.x` and `pub(crate)` name nothing.
        if !rest.is_empty() {
            here.insert(0, "crate");
            here.push(rest);
            self.found.push(Named { line, path: here.join("::") });
        }
    }

    fn peek(&self, ahead: usize) -> Option<&'a str> {
        self.tokens.get(self.at + ahead).map(|(_, token)| *token)
    }

    fn before(&self, back: usize) -> &'a str {
        self.at.checked_sub(back).map_or("", |at| self.tokens[at].1)
    }
}

/// Words, `::`, and every other character by itself, each with its line.
fn tokens(text: &str) -> Vec<(usize, &str)> {
    let mut found = vec![];
    for (number, line) in text.lines().enumerate() {
        let mut rest = line.trim_start();
        while let Some(first) = rest.chars().next() {
            let word = rest.find(|c| !is_word_part(c)).unwrap_or(rest.len());
            let length = match first {
                _ if word > 0 => word,
                ':' if rest.starts_with("::") => 2,
                _ => first.len_utf8(),
            };
            found.push((number + 1, &rest[..length]));
            rest = rest[length..].trim_start();
        }
    }
    found
}

fn is_word(token: &str) -> bool {
    token.starts_with(is_word_part)
}

fn is_word_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The text with comments and literals replaced by blanks; lines stay where they are.
fn blank(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let inside_word = out.ends_with(is_word_part);
        let length = comment(rest).or_else(|| literal(rest, inside_word)).unwrap_or(0);
        if length == 0 {
            out.push(first);
            rest = &rest[first.len_utf8()..];
        } else {
            out.extend(rest[..length].chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = &rest[length..];
        }
    }
    out
}

/// The length of the comment that `text` starts with.
fn comment(text: &str) -> Option<usize> {
    if text.starts_with("//") {
        return Some(text.find('\n').unwrap_or(text.len()));
    }
    if !text.starts_with("/*") {
        return None;
    }
    let (mut depth, mut at) = (1, 2);
    while depth > 0 {
        let step = text[at..].find(['/', '*'])?;
        at += step;
        let (change, length) = match text[at..].get(..2) {
            Some("/*") => (1, 2),
            Some("*/") => (-1, 2),
            _ => (0, 1),
        };
        depth += change;
        at += length;
    }
    Some(at)
}

/// The length of the string or character that `text` starts with.
fn literal(text: &str, inside_word: bool) -> Option<usize> {
    let bare = text.strip_prefix(['b', 'c']).filter(|_| !inside_word).unwrap_or(text);
    let before = text.len() - bare.len();
    if let Some(raw) = bare.strip_prefix('r').filter(|_| !inside_word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        if let Some(body) = raw[hashes..].strip_prefix('"') {
            let end = format!("\"{}", "#".repeat(hashes));
            return body.find(&end).map(|at| before + 2 + hashes + at + end.len());
        }
    }
    if let Some(body) = bare.strip_prefix('"') {
        return end_of(body, '"').map(|at| before + 1 + at);
    }
    let body = bare.strip_prefix('\'')?;
    let mut chars = body.chars();
    // A quote that no quote follows after one character is a lifetime.
    (chars.next()? == '\\' || chars.next() == Some('\''))
        .then(|| end_of(body, '\''))?
        .map(|at| before + 1 + at)
}

/// The length up to and with the first `quote` that no backslash escapes.
fn end_of(body: &str, quote: char) -> Option<usize> {
    let mut escaped = false;
    for (at, c) in body.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            _ if c == quote => return Some(at + quote.len_utf8()),
            _ => {}
        }
    }
    None
}
