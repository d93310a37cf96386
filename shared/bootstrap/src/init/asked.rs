//! Who answers what no flag gives.

use std::io::{BufRead, Write};

use super::error::InitError;

/// One question.
#[derive(Debug, Clone)]
pub struct Question<'a> {
    /// The flag that would have answered it.
    pub flag: &'static str,
    /// What is asked, without a question mark: `The topic with the events`.
    pub text: &'a str,
    /// What an empty answer means.
    pub default: Option<String>,
}

/// Somebody who can be asked.
pub trait Asked {
    /// The answer, which may be wrong: then the question is asked again if [`Asked::corrects`].
    fn ask(&mut self, question: &Question<'_>) -> Result<String, InitError>;
    /// Tells something beside the questions.
    fn tell(&mut self, text: &str) -> Result<(), InitError>;
    /// Whether a wrong answer may be answered again.
    fn corrects(&self) -> bool;
}

/// Takes every default; what has none is missing.
#[derive(Debug)]
pub struct Defaults<W> {
    out: W,
}

impl<W: Write> Defaults<W> {
    /// Notes go to `out`.
    pub fn new(out: W) -> Self {
        Self { out }
    }
}

impl<W: Write> Asked for Defaults<W> {
    fn ask(&mut self, question: &Question<'_>) -> Result<String, InitError> {
        question.default.clone().ok_or(InitError::Missing { flags: vec![question.flag] })
    }

    fn tell(&mut self, text: &str) -> Result<(), InitError> {
        writeln!(self.out, "{text}").map_err(InitError::Terminal)
    }

    fn corrects(&self) -> bool {
        false
    }
}

/// A person who reads `out` and writes into `input`.
#[derive(Debug)]
pub struct Dialogue<R, W> {
    input: R,
    out: W,
}

impl<R: BufRead, W: Write> Dialogue<R, W> {
    /// Questions and notes go to `out`, answers come from `input`, one a line.
    pub fn new(input: R, out: W) -> Self {
        Self { input, out }
    }
}

impl<R: BufRead, W: Write> Asked for Dialogue<R, W> {
    fn ask(&mut self, question: &Question<'_>) -> Result<String, InitError> {
        loop {
            let default = question.default.as_deref();
            let shown = default.map_or_else(String::new, |default| format!(" [{default}]"));
            let asked = write!(self.out, "{}{shown}: ", question.text).and_then(|()| self.out.flush());
            asked.map_err(InitError::Terminal)?;
            let mut line = String::new();
            if self.input.read_line(&mut line).map_err(InitError::Terminal)? == 0 {
                return Err(InitError::Ended);
            }
            match (line.trim(), default) {
                ("", Some(default)) => return Ok(default.to_owned()),
                ("", None) => self.tell("  It needs an answer.")?,
                (answer, _) => return Ok(answer.to_owned()),
            }
        }
    }

    fn tell(&mut self, text: &str) -> Result<(), InitError> {
        writeln!(self.out, "{text}").map_err(InitError::Terminal)
    }

    fn corrects(&self) -> bool {
        true
    }
}
