//! How a board is stored: a head, nodes, leaves, and a cell for each member.
//!
//! All cells but the head have the board's epoch in their names, so a board that is built anew
//! shares nothing with the one before.

use super::key::{Key, Order};
use crate::claim::Micros;
use crate::kit::bytes::{Reader, Writer};

const HEAD: u8 = 0xa1;
const NODE: u8 = 0xa2;
const LEAF: u8 = 0xa3;
const MEMBER: u8 = 0xa4;

/// Which board is the current one, and where its tree begins. It changes only when the tree grows
/// or shrinks at its root, or the board is replaced: writers all look at it, and must not hold each
/// other up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Head {
    pub(super) epoch: u64,
    pub(super) order: Order,
    /// The end of the board, by the engine's clock.
    pub(super) until: Option<Micros>,
    /// `None` if there is no board, and only something to be deleted or built.
    pub(super) root: Option<u64>,
    /// How many levels of nodes are above the leaves.
    pub(super) height: u8,
    pub(super) building: Option<Building>,
    pub(super) trash: Vec<Trash>,
}

/// A board that is being built to replace this one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Building {
    pub(super) epoch: u64,
    /// Nobody changes the board until then.
    pub(super) deadline: Micros,
    /// Cells of the tree up to this number may be there.
    pub(super) reserved: u64,
}

/// Cells that nobody reads any more and that are to be deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Trash {
    /// A board that was replaced.
    Tree { epoch: u64, root: u64, height: u8 },
    /// A board that was not finished.
    Unfinished { epoch: u64, reserved: u64 },
}

impl Head {
    pub(super) fn is_over(&self, now: Micros) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let order = match self.order {
            Order::HigherFirst => 0,
            Order::LowerFirst => 1,
        };
        let mut writer = Writer::new(HEAD).bytes(&self.epoch.to_be_bytes()).byte(order);
        writer = option(writer, self.until);
        writer = option(writer, self.root).byte(self.height);
        match self.building {
            None => writer = writer.byte(0),
            Some(Building { epoch, deadline, reserved }) => {
                writer = writer.byte(1).bytes(&epoch.to_be_bytes());
                writer.short(deadline);
                writer.short(reserved);
            }
        }
        for trash in &self.trash {
            match trash {
                Trash::Tree { epoch, root, height } => {
                    writer = writer.byte(0).bytes(&epoch.to_be_bytes());
                    writer = writer.bytes(&root.to_be_bytes()).byte(*height);
                }
                Trash::Unfinished { epoch, reserved } => {
                    writer = writer.byte(1).bytes(&epoch.to_be_bytes());
                    writer.short(*reserved);
                }
            }
        }
        writer.done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Head> {
        let mut reader = Reader::new(bytes, HEAD)?;
        let reader = &mut reader;
        let epoch = long(reader)?;
        let order = match reader.byte()? {
            0 => Order::HigherFirst,
            1 => Order::LowerFirst,
            _ => return None,
        };
        let (until, root, height) = (read_option(reader)?, read_option(reader)?, reader.byte()?);
        let building = match reader.byte()? {
            0 => None,
            1 => {
                let (epoch, deadline, reserved) = (long(reader)?, reader.short()?, reader.short()?);
                Some(Building { epoch, deadline, reserved })
            }
            _ => return None,
        };
        let mut trash = Vec::new();
        while !reader.is_empty() {
            trash.push(match reader.byte()? {
                0 => Trash::Tree { epoch: long(reader)?, root: long(reader)?, height: reader.byte()? },
                1 => Trash::Unfinished { epoch: long(reader)?, reserved: reader.short()? },
                _ => return None,
            });
        }
        Some(Head { epoch, order, until, root, height, building, trash })
    }
}

fn option(writer: Writer, number: Option<u64>) -> Writer {
    match number {
        None => writer.byte(0),
        Some(number) => writer.byte(1).bytes(&number.to_be_bytes()),
    }
}

fn read_option(reader: &mut Reader<'_>) -> Option<Option<u64>> {
    match reader.byte()? {
        0 => Some(None),
        1 => Some(Some(long(reader)?)),
        _ => None,
    }
}

/// A child of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Child {
    /// No key below it is before this one.
    pub(super) low: Key,
    pub(super) id: u64,
    /// How many members are below it.
    pub(super) count: u64,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) children: Vec<Child>,
}

impl Node {
    /// Which child a key belongs to.
    pub(super) fn index_of(&self, key: &Key) -> usize {
        self.children.partition_point(|child| child.low <= *key).saturating_sub(1)
    }

    pub(super) fn position(&self, id: u64) -> Option<usize> {
        self.children.iter().position(|child| child.id == id)
    }

    pub(super) fn count(&self) -> u64 {
        self.children.iter().map(|child| child.count).sum()
    }
}

/// Members whose keys are in a range, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Leaf {
    pub(super) low: Key,
    /// The first key that belongs to the next leaf.
    pub(super) high: Option<Key>,
    pub(super) keys: Vec<Key>,
}

impl Leaf {
    pub(super) fn covers(&self, key: &Key) -> bool {
        self.low <= *key && self.high.as_ref().is_none_or(|high| key < high)
    }
}

/// A cell of the tree.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Node(Node),
    Leaf(Leaf),
}

impl Part {
    pub(super) fn encode(&self) -> Vec<u8> {
        match self {
            Part::Node(node) => {
                let write = |writer: Writer, child: &Child| {
                    let mut writer = child.low.write(writer).bytes(&child.id.to_be_bytes());
                    writer.short(child.count);
                    writer
                };
                node.children.iter().fold(Writer::new(NODE), write).done()
            }
            Part::Leaf(leaf) => {
                let mut writer = leaf.low.write(Writer::new(LEAF));
                writer = match &leaf.high {
                    None => writer.byte(0),
                    Some(high) => high.write(writer.byte(1)),
                };
                leaf.keys.iter().fold(writer, |writer, key| key.write(writer)).done()
            }
        }
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Part> {
        if let Some(mut reader) = Reader::new(bytes, NODE) {
            let mut node = Node::default();
            while !reader.is_empty() {
                let (low, id) = (Key::read(&mut reader)?, long(&mut reader)?);
                node.children.push(Child { low, id, count: reader.short()? });
            }
            return (!node.children.is_empty()).then_some(Part::Node(node));
        }
        let mut reader = Reader::new(bytes, LEAF)?;
        let low = Key::read(&mut reader)?;
        let high = match reader.byte()? {
            0 => None,
            1 => Some(Key::read(&mut reader)?),
            _ => return None,
        };
        let mut leaf = Leaf { low, high, keys: Vec::new() };
        while !reader.is_empty() {
            leaf.keys.push(Key::read(&mut reader)?);
        }
        Some(Part::Leaf(leaf))
    }
}

/// What is kept for a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Member {
    pub(super) turned: i64,
    pub(super) reached: Micros,
    /// The last events that were counted, oldest first.
    pub(super) events: Vec<Vec<u8>>,
}

impl Member {
    pub(super) fn key(&self, member: &str) -> Key {
        Key { turned: self.turned, reached: self.reached, member: member.to_owned() }
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let mut writer = Writer::new(MEMBER).bytes(&self.turned.to_be_bytes());
        writer.short(self.reached);
        for event in &self.events {
            writer.short(event.len() as u64);
            writer = writer.bytes(event);
        }
        writer.done()
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Member> {
        let mut reader = Reader::new(bytes, MEMBER)?;
        let turned = i64::from_be_bytes(reader.bytes(8)?.try_into().ok()?);
        let mut member = Member { turned, reached: reader.short()?, events: Vec::new() };
        while !reader.is_empty() {
            let length = usize::try_from(reader.short()?).ok()?;
            member.events.push(reader.bytes(length)?.to_vec());
        }
        Some(member)
    }
}

fn long(reader: &mut Reader<'_>) -> Option<u64> {
    Some(u64::from_be_bytes(reader.bytes(8)?.try_into().ok()?))
}
