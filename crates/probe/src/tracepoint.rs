//! Where a tracepoint's fields are in its records, according to its `format` file.

/// The layout of one tracepoint's records.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Layout {
    fields: Vec<(String, Field)>,
}

/// Where one field lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Field {
    offset: usize,
    size: usize,
}

impl Layout {
    /// Reads a `format` file; lines that describe no field are passed over.
    pub(crate) fn parse(format: &str) -> Self {
        Self {
            fields: format.lines().filter_map(parse_line).collect(),
        }
    }

    /// The field called `name`, if it is there and at most eight bytes wide.
    pub(crate) fn field(&self, name: &str) -> Option<Field> {
        self.bytes(name).filter(|field| field.size <= 8)
    }

    /// The field called `name`, however wide it is.
    pub(crate) fn bytes(&self, name: &str) -> Option<Field> {
        let mut fields = self.fields.iter();
        let (_, field) = fields.find(|(field_name, _)| field_name == name)?;
        Some(*field)
    }
}

/// `field:__u32 snd_nxt; offset:80; size:4; signed:0;`
fn parse_line(line: &str) -> Option<(String, Field)> {
    let mut parts = line.trim().split(';').map(str::trim);
    let declaration = parts.next()?.strip_prefix("field:")?;
    let name = declaration.split_whitespace().last()?;
    let name = name.split_once('[').map_or(name, |(name, _)| name);
    let (mut offset, mut size) = (None, None);
    for part in parts {
        match part.split_once(':') {
            Some(("offset", value)) => offset = value.parse().ok(),
            Some(("size", value)) => size = value.parse().ok(),
            _ => {}
        }
    }
    Some((
        name.to_string(),
        Field {
            offset: offset?,
            size: size?,
        },
    ))
}

impl Field {
    /// The bytes of this field in `record`; `None` if the record is too short for it.
    #[inline]
    pub(crate) fn slice(self, record: &[u8]) -> Option<&[u8]> {
        record.get(self.offset..self.offset + self.size)
    }

    /// The unsigned value of this field in `record`; `None` if the record is too short for it.
    #[inline]
    pub(crate) fn read(self, record: &[u8]) -> Option<u64> {
        let bytes = self.slice(record)?;
        let mut value = [0; 8];
        if cfg!(target_endian = "little") {
            value[..bytes.len()].copy_from_slice(bytes);
        } else {
            value[8 - bytes.len()..].copy_from_slice(bytes);
        }
        Some(u64::from_ne_bytes(value))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FORMAT: &str = "name: tcp_probe\nID: 2273\nformat:\n\
        \tfield:unsigned short common_type;\toffset:0;\tsize:2;\tsigned:0;\n\n\
        \tfield:__u8 saddr[28];\toffset:8;\tsize:28;\tsigned:0;\n\
        \tfield:__u16 dport;\toffset:66;\tsize:2;\tsigned:0;\n\
        \tfield:__u64 sock_cookie;\toffset:112;\tsize:8;\tsigned:0;\n\
        \tfield:const void * skaddr;\toffset:128;\tsize:8;\tsigned:0;\n\n\
        print fmt: \"family=%s\", { 2, \"AF_INET\" }\n";

    #[test]
    fn fields_are_found_by_name_wherever_they_lie() {
        let layout = Layout::parse(FORMAT);
        assert_eq!(
            layout.field("dport"),
            Some(Field {
                offset: 66,
                size: 2
            })
        );
        assert_eq!(
            layout.field("sock_cookie"),
            Some(Field {
                offset: 112,
                size: 8
            })
        );
        assert_eq!(
            layout.field("skaddr"),
            Some(Field {
                offset: 128,
                size: 8
            })
        );
        assert_eq!(layout.field("saddr"), None, "too wide for a number");
        assert_eq!(layout.field("lost"), None);
        assert_eq!(layout.fields.len(), 5);
    }

    #[test]
    fn a_field_is_read_in_the_machine_s_byte_order_and_never_past_the_end() {
        let mut record = vec![0u8; 80];
        record[66..68].copy_from_slice(&5001u16.to_ne_bytes());
        let dport = Layout::parse(FORMAT).field("dport").unwrap();
        assert_eq!(dport.read(&record), Some(5001));
        assert_eq!(dport.read(&record[..67]), None);
    }

    #[test]
    fn nonsense_has_no_fields() {
        for text in [
            "",
            "field:",
            "field:int a;",
            "field:int a; offset:x; size:4;",
            "\u{0}",
        ] {
            assert_eq!(Layout::parse(text).fields, []);
        }
    }
}
