//! The form of a script: blocks of commands and of what comes out.

use std::fmt;

/// A script.
pub struct Story {
    pub blocks: Vec<Block>,
}

/// Lines between two blank ones.
pub struct Block {
    /// Number of its first line, from 1.
    first: usize,
    /// Remarks and commands.
    input: Vec<String>,
    /// What comes out; a block of remarks alone has none.
    pub output: Vec<String>,
    has_output: bool,
}

impl Story {
    pub fn read(text: &str) -> Result<Self, String> {
        let mut blocks = Vec::new();
        let mut lines = (1..).zip(text.lines()).peekable();
        loop {
            while lines.next_if(|(_, line)| line.trim().is_empty()).is_some() {}
            let Some(&(first, _)) = lines.peek() else { return Ok(Self { blocks }) };
            let mut block = Block { first, input: vec![], output: vec![], has_output: false };
            while let Some((_, line)) = lines.next_if(|(_, line)| !line.trim().is_empty()) {
                if block.has_output {
                    block.output.push(line.trim_end().to_owned());
                } else if line == "---" {
                    block.has_output = true;
                } else {
                    block.input.push(line.trim_end().to_owned());
                }
            }
            if !block.has_output && block.commands().next().is_some() {
                return Err(format!("line {first}: no `---` follows"));
            }
            blocks.push(block);
        }
    }
}

impl Block {
    /// The commands with their line numbers.
    pub fn commands(&self) -> impl Iterator<Item = (usize, &str)> {
        let numbered = (self.first..).zip(self.input.iter().map(String::as_str));
        numbered.filter(|(_, line)| !line.starts_with('#'))
    }
}

impl fmt::Display for Story {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, block) in self.blocks.iter().enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            for line in &block.input {
                writeln!(f, "{line}")?;
            }
            if block.has_output {
                writeln!(f, "---")?;
            }
            for line in &block.output {
                writeln!(f, "{line}")?;
            }
        }
        Ok(())
    }
}
