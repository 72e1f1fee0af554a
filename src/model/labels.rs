//! Closed sets of label values: an enum whose variants each have one word.

/// Declares an enum with one word for each variant: the label value, the word in JSON and in stored state.
macro_rules! label_enum {
    ($(#[doc = $about:literal])+ $name:ident { $($(#[doc = $doc:literal])+ $variant:ident = $word:literal,)+ }) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name { $($(#[doc = $doc])+ #[serde(rename = $word)] $variant,)+ }

        impl $name {
            /// All values, in the order of the metrics.
            pub const ALL: &'static [Self] = &[$(Self::$variant,)+];

            /// Returns the word.
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)+ }
            }

            /// Reads the word; `None` if it is not one of the set.
            pub fn parse(word: &str) -> Option<Self> {
                Self::ALL.iter().copied().find(|value| value.as_str() == word)
            }
        }
    };
}

pub(super) use label_enum;
