"""The public class of each operation: its descriptor together with a typed `PrimitiveDesc`."""
