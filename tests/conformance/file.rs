//! What only a store in files must survive.

mod store;

use crate::Group;

pub(crate) fn groups() -> Vec<Group> {
    vec![store::group()]
}
