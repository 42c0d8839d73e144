//! Checks names and order of tables.

use super::*;

#[test]
fn page_offers_all_tables() {
    let page = crate::server::assets::PAGE;
    let (_, choice) = page.split_once("id=\"table-name\">").unwrap();
    let (choice, _) = choice.split_once("</select>").unwrap();
    let offered: Vec<&str> =
        choice.split("value=\"").skip(1).map(|option| option.split_once('"').unwrap().0).collect();
    // The page makes the table of functions from a flame graph.
    assert!(offered.iter().filter(|name| **name != "functions").eq(&TABLES), "{offered:?}");
    assert!(offered.contains(&"functions"));
}
