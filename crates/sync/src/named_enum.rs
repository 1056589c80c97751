//! Enums whose members have names.
//!
//! Kinds of latch, lock managers, victim policies: each is an enum without fields whose members
//! have a name on command lines and in reports. One list has the members and their names, so every
//! printed name can be parsed, and an error lists the choices.

use std::fmt;

/// Gives an enum without fields its names: `ALL`, `Display` and `FromStr`. Old names, behind `|`,
/// are read and never printed.
///
/// ```
/// #[derive(Debug, Clone, Copy, PartialEq)]
/// enum Drink {
///     Tea,
///     Cocoa,
/// }
///
/// foxton_sync::named_enum! {
///     Drink, "drink":
///     Tea = "tea",
///     Cocoa = "cocoa" | "hot chocolate",
/// }
///
/// assert_eq!("tea".parse(), Ok(Drink::Tea));
/// assert_eq!("hot chocolate".parse(), Ok(Drink::Cocoa), "an old name is still read");
/// assert_eq!(Drink::ALL.map(|drink| drink.to_string()), ["tea", "cocoa"]);
/// assert_eq!(
///     "beer".parse::<Drink>().unwrap_err().to_string(),
///     "there is no drink called \"beer\"; there are tea, cocoa"
/// );
/// ```
// Not an iterator over a trait's names: `name` is matched in one place, so a list that lacks a
// member does not compile.
#[macro_export]
macro_rules! named_enum {
    ($type:ident, $what:literal: $($member:ident = $name:literal $(| $old:literal)*),+ $(,)?) => {
        impl $type {
            /// All members, in the order in which they are listed to people.
            pub const ALL: [Self; [$($name),+].len()] = [$(Self::$member),+];

            const fn name(self) -> &'static str {
                match self {
                    $(Self::$member => $name),+
                }
            }

            const fn old_names(self) -> &'static [&'static str] {
                match self {
                    $(Self::$member => &[$($old),*]),+
                }
            }
        }

        impl ::std::fmt::Display for $type {
            fn fmt(&self, f: &mut ::std::fmt::Formatter<'_>) -> ::std::fmt::Result {
                f.pad(self.name())
            }
        }

        impl ::std::str::FromStr for $type {
            type Err = $crate::named_enum::UnknownChoice;

            fn from_str(name: &str) -> ::std::result::Result<Self, Self::Err> {
                let is_called = |member: &Self| {
                    member.name() == name || member.old_names().contains(&name)
                };
                let found = Self::ALL.into_iter().find(is_called);
                found.ok_or_else(|| $crate::named_enum::UnknownChoice::new($what, name, &[$($name),+]))
            }
        }
    };
}

/// A name that no member has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownChoice {
    what: &'static str,
    name: String,
    choices: &'static [&'static str],
}

impl UnknownChoice {
    /// There is no `what` called `name`; the choices are `choices`.
    pub fn new(what: &'static str, name: &str, choices: &'static [&'static str]) -> Self {
        Self {
            what,
            name: name.to_owned(),
            choices,
        }
    }
}

impl fmt::Display for UnknownChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            what,
            name,
            choices,
        } = self;
        write!(
            f,
            "there is no {what} called {name:?}; there are {}",
            choices.join(", ")
        )
    }
}

impl std::error::Error for UnknownChoice {}
