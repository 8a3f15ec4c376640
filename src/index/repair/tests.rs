use super::*;

#[test]
fn repair_is_parsed_from_its_text() {
    for repair in [Repair::Check, Repair::Recover, Repair::Salvage] {
        assert_eq!(repair.to_string().parse(), Ok(repair));
    }
    let error = "fix".parse::<Repair>().unwrap_err();
    let expected = "repair \"fix\"; expected check, recover or salvage";
    assert_eq!(error.to_string(), expected);
}
