//! A reader of the part of CTF 1.8 that the writer uses. It knows nothing of the writer: types, names
//! and positions come from the metadata.

use std::collections::HashMap;
use std::ops::Index;
use std::path::Path;

use serde_json::Value as Json;

/// A value that was read.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Tree {
    Int(i128),
    /// The name of an enumeration value, and the value.
    Named(String, i128),
    Float(f64),
    Text(String),
    Struct(ReadStruct),
    Array(Vec<Self>),
}

/// A structure that was read, without the lengths of its sequences.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ReadStruct {
    pub(super) values: Vec<(String, Tree)>,
}

impl ReadStruct {
    pub(super) fn get(&self, name: &str) -> Option<&Tree> {
        self.values.iter().find(|(own, _)| own == name).map(|(_, tree)| tree)
    }
}

impl Index<&str> for ReadStruct {
    type Output = Tree;

    fn index(&self, name: &str) -> &Tree {
        self.get(name).unwrap_or_else(|| panic!("no {name} in {self:?}"))
    }
}

impl Tree {
    pub(super) fn as_int(&self) -> i128 {
        match self {
            Self::Int(number) | Self::Named(_, number) => *number,
            _ => panic!("{self:?} is no integer"),
        }
    }

    pub(super) fn as_text(&self) -> &str {
        match self {
            Self::Text(text) | Self::Named(text, _) => text,
            _ => panic!("{self:?} is no text"),
        }
    }

    pub(super) fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            _ => panic!("{self:?} is no array"),
        }
    }

    /// Returns whether the value is the one that JSON shows.
    pub(super) fn matches(&self, json: &Json) -> bool {
        match (self, json) {
            (Self::Named(name, _), Json::String(text)) if name == text => true,
            (Self::Int(number) | Self::Named(_, number), Json::Number(json)) => {
                is_same_integer(json.as_i64().map(i128::from).or(json.as_u64().map(i128::from)), *number)
            }
            (Self::Int(number) | Self::Named(_, number), Json::Bool(json)) => (*number != 0) == *json,
            (Self::Int(number) | Self::Named(_, number), Json::String(json)) => {
                let hex = json.strip_prefix("0x").and_then(|hex| i128::from_str_radix(hex, 16).ok());
                // JSON joins names of bits.
                let expected = hex.or(json.parse().ok());
                expected.is_none() || is_same_integer(expected, *number)
            }
            // JSON has the shortest text of a 32-bit or of a 64-bit number, and its parser rounds.
            (Self::Float(number), Json::Number(json)) => json.as_f64().is_some_and(|json| {
                let is_narrow = f64::from(*number as f32) == *number;
                (json - number).abs() <= number.abs() * 1e-14 || (is_narrow && json as f32 == *number as f32)
            }),
            (Self::Float(number), Json::String(json)) => match json.as_str() {
                "NaN" => number.is_nan(),
                "Infinity" => *number == f64::INFINITY,
                _ => *number == f64::NEG_INFINITY,
            },
            (Self::Text(text), Json::String(json)) => {
                // Bytes that are no address are hexadecimal.
                let hex = text.strip_prefix("0x").map(str::to_lowercase);
                *text == json.replace('\0', "\u{2400}") || hex.as_ref() == Some(json)
            }
            (Self::Text(text), Json::Null) => text.is_empty() || text == "(no date)",
            (Self::Text(text), Json::Number(json)) => *text == json.to_string(),
            (Self::Array(bytes), Json::String(json)) => {
                let hex: String = bytes.iter().map(|byte| format!("{:02x}", byte.as_int())).collect();
                hex == *json
            }
            (Self::Array(elements), Json::Array(json)) => {
                elements.len() == json.len()
                    && elements.iter().zip(json).all(|(tree, json)| tree.matches(json))
            }
            (Self::Struct(members), Json::Array(json)) => {
                members.values.len() == json.len()
                    && members.values.iter().zip(json).all(|((_, tree), json)| tree.matches(json))
            }
            // The members of the JSON object are sorted by name.
            (Self::Struct(members), Json::Object(json)) => {
                let is_other = |c: char| !c.is_ascii_alphanumeric();
                let identifier = |key: &str| match key {
                    "" => "_field".to_owned(),
                    _ => format!("_{}", key.replace(is_other, "_")),
                };
                let has_member = |(key, json): (&String, &Json)| {
                    members.get(&identifier(key)).is_some_and(|tree| tree.matches(json))
                };
                members.values.len() == json.len() && json.iter().all(has_member)
            }
            // A sequence of byte strings has one structure for each.
            (Self::Struct(members), json) => members.values.len() == 1 && members.values[0].1.matches(json),
            _ => false,
        }
    }
}

/// Returns whether JSON shows an integer. Hexadecimal integers have no sign in CTF.
fn is_same_integer(json: Option<i128>, number: i128) -> bool {
    let without_sign = |bits: u32, json: i128| json < 0 && json + (1_i128 << bits) == number;
    json.is_some_and(|json| json == number || [8, 16, 32, 64].iter().any(|bits| without_sign(*bits, json)))
}

/// A type in the metadata.
#[derive(Clone, Debug)]
pub(super) enum Type {
    Int { bytes: usize, is_signed: bool },
    Enum { container: Box<Self>, names: Vec<(String, i128)> },
    Float { bytes: usize },
    Text,
    Struct(StructType),
}

#[derive(Clone, Debug, Default)]
pub(super) struct StructType {
    members: Vec<Member>,
}

#[derive(Clone, Debug)]
struct Member {
    name: String,
    kind: Type,
    length: Option<ArrayLength>,
}

#[derive(Clone, Debug)]
enum ArrayLength {
    Fixed(usize),
    Member(String),
}

/// The metadata of a folder.
#[derive(Default)]
pub(super) struct Metadata {
    aliases: HashMap<String, Type>,
    /// Structures by block and name, such as "stream packet.context".
    structures: HashMap<String, StructType>,
    events: HashMap<u32, (String, StructType)>,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Word(String),
    Number(i128),
    Text(String),
    Sign(&'static str),
}

fn tokenize(text: &str) -> Vec<Token> {
    let mut tokens = Vec::new();
    let mut rest = text.chars().peekable();
    while let Some(c) = rest.next() {
        match c {
            _ if c.is_whitespace() => {}
            '/' => {
                assert_eq!(rest.next(), Some('*'));
                let mut last = ' ';
                for c in rest.by_ref() {
                    if last == '*' && c == '/' {
                        break;
                    }
                    last = c;
                }
            }
            '"' => {
                let mut text = String::new();
                loop {
                    match rest.next().expect("a string must end") {
                        '"' => break,
                        '\\' => text.push(rest.next().unwrap()),
                        c => {
                            assert!(!c.is_control(), "a control character in a string");
                            text.push(c);
                        }
                    }
                }
                tokens.push(Token::Text(text));
            }
            ':' if rest.peek() == Some(&'=') => {
                rest.next();
                tokens.push(Token::Sign(":="));
            }
            '{' | '}' | '[' | ']' | ';' | '=' | ',' | ':' => {
                let signs = ["{", "}", "[", "]", ";", "=", ",", ":"];
                tokens.push(Token::Sign(signs.into_iter().find(|sign| sign.starts_with(c)).unwrap()));
            }
            _ => {
                let mut word = c.to_string();
                while let Some(c) = rest.next_if(|c| c.is_ascii_alphanumeric() || "_.".contains(*c)) {
                    word.push(c);
                }
                let is_word = |c: char| c.is_ascii_alphanumeric() || "_.-".contains(c);
                assert!(word.chars().all(is_word), "{word:?}");
                tokens.push(word.parse().map_or(Token::Word(word), Token::Number));
            }
        }
    }
    tokens
}

struct Parser {
    tokens: std::vec::IntoIter<Token>,
    aliases: HashMap<String, Type>,
}

impl Parser {
    fn new(text: &str, aliases: HashMap<String, Type>) -> Self {
        Self { tokens: tokenize(text).into_iter(), aliases }
    }

    fn peek(&self) -> Option<&Token> {
        self.tokens.as_slice().first()
    }

    fn skip(&mut self, sign: &str) -> bool {
        let is_next = matches!(self.peek(), Some(Token::Sign(own)) if *own == sign);
        if is_next {
            self.tokens.next();
        }
        is_next
    }

    fn expect(&mut self, sign: &str) {
        assert!(
            self.skip(sign),
            "expected {sign} before {:?}",
            self.tokens.as_slice().iter().take(9).collect::<Vec<_>>()
        );
    }

    fn word(&mut self) -> String {
        match self.tokens.next() {
            Some(Token::Word(word)) => word,
            other => panic!("expected a word instead of {other:?}"),
        }
    }

    fn number(&mut self) -> i128 {
        match self.tokens.next() {
            Some(Token::Number(number)) => number,
            other => panic!("expected a number instead of {other:?}"),
        }
    }

    /// Parses `{ key = value; … }`.
    fn attributes(&mut self) -> HashMap<String, Token> {
        self.expect("{");
        let mut attributes = HashMap::new();
        while !self.skip("}") {
            let key = self.word();
            self.expect("=");
            attributes.insert(key, self.tokens.next().unwrap());
            self.expect(";");
        }
        attributes
    }

    fn kind(&mut self) -> Type {
        let word = self.word();
        match word.as_str() {
            "struct" => {
                self.expect("{");
                let mut members = Vec::new();
                while !self.skip("}") {
                    members.push(self.member());
                }
                Type::Struct(StructType { members })
            }
            "enum" => {
                self.expect(":");
                let container = Box::new(self.kind());
                self.expect("{");
                let mut names = Vec::new();
                loop {
                    let Some(Token::Text(name)) = self.tokens.next() else { panic!("expected a name") };
                    self.expect("=");
                    names.push((name, self.number()));
                    if self.skip("}") {
                        break;
                    }
                    self.expect(",");
                }
                Type::Enum { container, names }
            }
            "string" => Type::Text,
            "integer" => {
                let attributes = self.attributes();
                let Token::Number(size) = attributes["size"] else { panic!("no size") };
                assert_eq!(attributes["align"], Token::Number(8));
                let is_signed = attributes["signed"] == Token::Word("true".to_owned());
                Type::Int { bytes: size as usize / 8, is_signed }
            }
            "floating_point" => {
                let attributes = self.attributes();
                let bits = |key: &str| match attributes[key] {
                    Token::Number(bits) => bits,
                    _ => panic!("no {key}"),
                };
                Type::Float { bytes: (bits("exp_dig") + bits("mant_dig")) as usize / 8 }
            }
            _ => self.aliases.get(&word).unwrap_or_else(|| panic!("no type {word}")).clone(),
        }
    }

    fn member(&mut self) -> Member {
        let kind = self.kind();
        let name = self.word();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_'), "{name:?}");
        let length = self.skip("[").then(|| {
            let length = match self.tokens.next() {
                Some(Token::Number(count)) => ArrayLength::Fixed(count as usize),
                Some(Token::Word(name)) => ArrayLength::Member(name),
                other => panic!("expected a length instead of {other:?}"),
            };
            self.expect("]");
            length
        });
        self.expect(";");
        Member { name, kind, length }
    }
}

impl Metadata {
    /// Parses declarations of fields with the types of integers that the metadata names.
    pub(super) fn parse_fields(text: &str) -> StructType {
        let types = Self::parse(super::super::tsdl::TYPES);
        let mut parser = Parser::new(&format!("struct {{ {text} }}"), types.aliases);
        match parser.kind() {
            Type::Struct(fields) => fields,
            other => panic!("{other:?}"),
        }
    }

    fn parse(text: &str) -> Self {
        let mut metadata = Self::default();
        let mut parser = Parser::new(text, HashMap::new());
        while parser.peek().is_some() {
            let block = parser.word();
            if block == "typealias" {
                let kind = parser.kind();
                parser.expect(":=");
                let name = parser.word();
                parser.aliases.insert(name, kind);
                parser.expect(";");
                continue;
            }
            parser.expect("{");
            let mut values = HashMap::new();
            let mut structures = HashMap::new();
            while !parser.skip("}") {
                let key = parser.word();
                if parser.skip(":=") {
                    let Type::Struct(kind) = parser.kind() else { panic!("{key} is no structure") };
                    structures.insert(key, kind);
                } else {
                    parser.expect("=");
                    values.insert(key, parser.tokens.next().unwrap());
                }
                parser.expect(";");
            }
            parser.expect(";");
            if block == "event" {
                let (Token::Number(id), Token::Text(name)) = (&values["id"], &values["name"]) else {
                    panic!("{values:?}")
                };
                let fields = structures.remove("fields").unwrap();
                let earlier = metadata.events.insert(*id as u32, (name.clone(), fields));
                assert!(earlier.is_none(), "two events have the number {id}");
            } else {
                let structures = structures.into_iter().map(|(key, kind)| (format!("{block} {key}"), kind));
                metadata.structures.extend(structures);
            }
        }
        metadata.aliases = parser.aliases;
        metadata
    }
}

/// Reads a structure from the beginning of the bytes, and returns the bytes after it.
pub(super) fn decode_struct<'b>(kind: &StructType, bytes: &'b [u8]) -> (ReadStruct, &'b [u8]) {
    let mut rest = bytes;
    let mut read = ReadStruct::default();
    let mut lengths = Vec::new();
    for member in &kind.members {
        let count = match &member.length {
            None => None,
            Some(ArrayLength::Fixed(count)) => Some(*count),
            Some(ArrayLength::Member(name)) => {
                lengths.push(name.clone());
                Some(read[name.as_str()].as_int() as usize)
            }
        };
        let tree = match count {
            None => decode(&member.kind, &mut rest),
            Some(count) => Tree::Array((0..count).map(|_| decode(&member.kind, &mut rest)).collect()),
        };
        assert!(read.get(&member.name).is_none(), "two members {}", member.name);
        read.values.push((member.name.clone(), tree));
    }
    read.values.retain(|(name, _)| !lengths.contains(name));
    (read, rest)
}

fn decode(kind: &Type, rest: &mut &[u8]) -> Tree {
    match kind {
        Type::Int { bytes, is_signed } => Tree::Int(decode_int(*bytes, *is_signed, rest)),
        Type::Enum { container, names } => {
            let number = decode(container, rest).as_int();
            match names.iter().find(|(_, value)| *value == number) {
                Some((name, _)) => Tree::Named(name.clone(), number),
                None => Tree::Int(number),
            }
        }
        Type::Float { bytes: 4 } => Tree::Float(f32::from_bits(decode_int(4, false, rest) as u32).into()),
        Type::Float { .. } => Tree::Float(f64::from_bits(decode_int(8, false, rest) as u64)),
        Type::Text => {
            let end = rest.iter().position(|byte| *byte == 0).expect("a text must end");
            let text = std::str::from_utf8(&rest[..end]).expect("a text must be UTF-8").to_owned();
            *rest = &rest[end + 1..];
            Tree::Text(text)
        }
        Type::Struct(kind) => {
            let (read, after) = decode_struct(kind, rest);
            *rest = after;
            Tree::Struct(read)
        }
    }
}

fn decode_int(bytes: usize, is_signed: bool, rest: &mut &[u8]) -> i128 {
    let (own, after) = rest.split_at(bytes);
    *rest = after;
    let number = own.iter().rev().fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
    let unused = 64 - 8 * bytes;
    if is_signed { ((number << unused) as i64 >> unused).into() } else { number.into() }
}

/// An event that was read.
#[derive(Debug)]
pub(super) struct ReadEvent {
    pub(super) name: String,
    pub(super) time: u64,
    pub(super) context: ReadStruct,
    pub(super) fields: ReadStruct,
}

/// A packet, by the positions in the specification of the writer.
pub(super) struct Packet<'b> {
    pub(super) begin: u64,
    pub(super) end: u64,
    pub(super) discarded: u64,
    pub(super) cpu: u32,
    pub(super) events: &'b [u8],
}

/// Splits a stream into packets.
pub(super) fn split_packets(mut bytes: &[u8]) -> Vec<Packet<'_>> {
    let mut packets = Vec::new();
    while !bytes.is_empty() {
        let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap());
        assert_eq!(bytes[..4], 0xC1FC_1FC1_u32.to_le_bytes());
        assert_eq!(number(40), number(48), "no padding");
        assert_eq!(number(56), packets.len() as u64, "packets are numbered");
        let (packet, after) = bytes.split_at(number(48) as usize / 8);
        let cpu = u32::from_le_bytes(packet[72..76].try_into().unwrap());
        packets.push(Packet {
            begin: number(24),
            end: number(32),
            discarded: number(64),
            cpu,
            events: &packet[76..],
        });
        bytes = after;
    }
    packets
}

/// Reads all events of a folder, stream by stream.
pub(super) fn read_folder(folder: &Path) -> Vec<ReadEvent> {
    let text = std::fs::read_to_string(folder.join("metadata")).unwrap();
    assert!(text.starts_with("/* CTF 1.8 */\n"));
    let metadata = Metadata::parse(&text);
    let mut events = Vec::new();
    for entry in folder.read_dir().unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().unwrap() == "metadata" {
            continue;
        }
        let bytes = std::fs::read(&path).unwrap();
        let (mut last_time, mut last_discarded) = (0, 0);
        for packet in split_packets(&bytes) {
            assert!(packet.discarded >= last_discarded);
            last_discarded = packet.discarded;
            let mut rest = packet.events;
            while !rest.is_empty() {
                let (header, after) = decode_struct(&metadata.structures["stream event.header"], rest);
                let (context, after) = decode_struct(&metadata.structures["stream event.context"], after);
                let (name, fields) = &metadata.events[&(header["id"].as_int() as u32)];
                let (fields, after) = decode_struct(fields, after);
                rest = after;
                let time = header["timestamp"].as_int() as u64;
                assert!(time >= last_time && (packet.begin..=packet.end).contains(&time));
                last_time = time;
                events.push(ReadEvent { name: name.clone(), time, context, fields });
            }
        }
    }
    events
}
