use super::*;

fn floats(name: &str, count: usize, offset: usize) -> Column {
    Column::new(name, DType::F32, [count], offset)
}

#[test]
fn column_codes_name_one_each() {
    for code in 0..=u8::MAX {
        assert!(DType::from_code(code).is_none_or(|dtype| dtype.code() == code));
        assert!(ColumnRole::from_code(code).is_none_or(|role| role.code() == code));
    }
    for dtype in DType::ALL {
        assert_eq!(DType::from_code(dtype.code()), Some(dtype));
    }
    for role in ColumnRole::ALL {
        assert_eq!(ColumnRole::from_code(role.code()), Some(role));
    }
}

#[test]
fn column_layouts_that_no_value_has_are_refused() {
    let fine = [
        floats("a", 4, 0),
        Column::new("b", DType::U8, [], 16),
        floats("c", 4, 20),
    ];
    assert_eq!(check(&fine, 36), Ok(()));
    assert_eq!(check(&[], 1), Ok(()));
    let many: Vec<Column> = (0..17).map(|n| floats(&format!("{n}"), 1, 4 * n)).collect();
    assert_eq!(check(&many[..16], 68), Ok(()));
    let wrong: [(&str, &[Column], usize); 12] = [
        ("17 columns", &many, 68),
        ("beyond the end", &fine, 35),
        ("no name", &[floats("", 1, 0)], 36),
        ("a long name", &[floats(&"x".repeat(32), 1, 0)], 36),
        ("a zero in a name", &[floats("a\0", 1, 0)], 36),
        ("equal names", &[floats("a", 1, 0), floats("a", 1, 4)], 36),
        ("overlapping", &[floats("a", 2, 0), floats("b", 1, 4)], 36),
        ("not ascending", &[floats("a", 1, 8), floats("b", 1, 0)], 36),
        ("a dimension of 0", &[floats("a", 0, 0)], 36),
        ("rank 5", &[Column::new("a", DType::U8, [1; 5], 0)], 36),
        (
            "a product that wraps",
            &[Column::new("a", DType::U64, [1 << 62, 8], 0)],
            36,
        ),
        ("an end that wraps", &[floats("a", 1, usize::MAX)], 36),
    ];
    for (name, columns, value_size) in wrong {
        assert!(check(columns, value_size).is_err(), "{name}");
    }
}

#[test]
fn optimizer_state_shares_no_line_with_what_lookups_read() {
    let state = |count, offset| floats("s", count, offset).with_role(ColumnRole::OptimizerState);
    let weight = floats("w", 20, 0);
    // A line that ends where the state begins, or one of a value that is short.
    assert_eq!(
        check_lines(&[floats("w", 16, 0), state(16, 64)], 128),
        Ok(())
    );
    assert_eq!(check_lines(&[weight.clone(), state(4, 128)], 144), Ok(()));
    assert_eq!(check_lines(&[floats("w", 8, 0), state(8, 32)], 64), Ok(()));
    assert_eq!(
        check_lines(&[weight.clone(), floats("x", 4, 80)], 144),
        Ok(())
    );
    let (found, expected) = check_lines(&[weight, state(4, 100)], 144).unwrap_err();
    assert!(
        found.contains("\"s\" (optimizer state) at byte 100"),
        "{found}"
    );
    assert!(
        expected.contains("28 bytes of padding before column \"s\""),
        "{expected}"
    );
    assert!(expected.ends_with("byte 128"), "{expected}");
    assert!(check_lines(&[state(1, 0), floats("w", 16, 4)], 128).is_err());
}
