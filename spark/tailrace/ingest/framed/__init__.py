"""Read messages whose schemas are in a schema registry: Avro and Protobuf in Confluent's wire format."""
